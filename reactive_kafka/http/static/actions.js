// What operators do with channels, records and dead letters: their buttons, and what each of them
// says before it acts. POST /api/... carries it out.

import { Table, ageText, button, element, numberText, setText, timeText } from "./elements.js"
import { ask, hasToken, pathOf } from "./service.js"
import { confirmAction } from "./dialog.js"

const OPERATORS_PAUSE = "paused by an operator"
const LETTERS = 20
// How many letters are searched for that of one record.
const LETTERS_SEARCHED = 1000
const PROGRESS_MS = 1000
const LEVELS = ["debug", "info", "warning", "error", "critical", "notset"]
const NO_TOKEN = "Nothing can be changed from this page, because the service has no token: " +
  "set token_file in [http] to get buttons here."

// Whether the service has a token. Without one it has no actions.
let isPossible = false
// Name -> a channel as it is now. A button may have been drawn when it was another one.
let newest = new Map()

export function takeFacts(facts) {
  isPossible = facts.application.can_act
  newest = new Map(facts.incoming.map((one) => [one.channel, one]))
  document.body.classList.toggle("acts", isPossible)
}

function now(channel) {
  return newest.get(channel.channel) || channel
}

function partitionNow(channel, partition) {
  const isSame = (one) => one.topic === partition.topic && one.partition === partition.partition
  return now(channel).partitions?.find(isSame) || partition
}

export function canAct() {
  return isPossible
}

function nameOf(place) {
  return `${place.topic}-${place.partition}`
}

function postToChannel(channel, action, body) {
  return ask("POST", `api/channels/${pathOf(channel.channel)}/${action}`, body)
}

// -- a channel

function simple(channel, action, confirm, says, body = {}) {
  confirmAction({
    title: `${confirm} channel ${channel.channel}?`,
    confirm,
    says: () => says,
    run: () => postToChannel(channel, action, body),
  })
}

function pause(channel, partition) {
  const what = partition ? `Partition ${nameOf(partition)} of channel ${channel.channel}` : `Channel ${channel.channel}`
  const place = partition ? { topic: partition.topic, partition: partition.partition } : {}
  confirmAction({
    title: partition ? `Pause partition ${nameOf(partition)}?` : `Pause channel ${channel.channel}?`,
    confirm: "Pause",
    fields: [{ name: "reason", label: "Reason", kind: "text", value: OPERATORS_PAUSE }],
    says: ({ reason }) => [
      `${what} fetches and starts nothing more until it is resumed. Handlers that run may finish, and commits continue.`,
      `Other operators see the reason: ${reason}`,
    ],
    run: ({ reason }) => postToChannel(channel, "pause", { reason, ...place }),
  })
}

function resume(channel, partition) {
  const place = partition ? { topic: partition.topic, partition: partition.partition } : {}
  const reasons = channel.paused_by.length && !partition ? channel.paused_by : [OPERATORS_PAUSE]
  confirmAction({
    title: partition ? `Resume partition ${nameOf(partition)}?` : `Resume channel ${channel.channel}?`,
    confirm: "Resume",
    fields: [partition || reasons.length === 1
      ? { name: "reason", label: "Reason of the pause", kind: "text", value: reasons[0] }
      : { name: "reason", label: "Reason of the pause", kind: "select", options: reasons.map((one) => [one, one]) }],
    says: ({ reason }) => {
      const others = partition ? [] : channel.paused_by.filter((one) => one !== reason)
      const what = partition ? `partition ${nameOf(partition)} of channel ${channel.channel}` : `channel ${channel.channel}`
      return [
        `The pause of ${what} with this reason ends: ${reason}`,
        others.length ? `It stays paused for other reasons: ${others.join("; ")}` : "Its records are handled again.",
      ]
    },
    run: ({ reason }) => postToChannel(channel, "resume", { reason, ...place }),
  })
}

function stop(channel) {
  const group = channel.group ? `leaves group ${channel.group}, whose other members get its partitions` : "releases its partitions"
  simple(channel, "stop", "Stop", [
    `Channel ${channel.channel} lets its ${numberText(channel.in_flight)} records in flight finish, commits, and ${group}.`,
    "It handles nothing until it is started again.",
  ])
}

function start(channel) {
  simple(channel, "start", "Start", [`Channel ${channel.channel} starts, and reads on from its committed positions.`])
}

function restart(channel) {
  simple(channel, "restart", "Restart", [
    `Channel ${channel.channel} has failed. It starts again from its committed positions.`,
    "Records that were not settled are handled again, also the one that it has failed for. Skip that record first if it would fail again.",
  ])
}

// -- a partition

const WHERE = [["offset", "at an offset"], ["beginning", "at the beginning of the log"], ["end", "at the end of the log"],
  ["timestamp", "at a time"]]

function seekText(partition, { where, offset, time }) {
  const name = nameOf(partition)
  if (where === "beginning") {
    return [`${name} continues at the beginning of its log. All records that the log still has are handled again.`]
  }
  if (where === "end") {
    return [`${name} continues at the end of its log. Records that were not handled before are left out: lag ${numberText(partition.lag)}.`]
  }
  if (where === "timestamp") {
    const moment = time ? new Date(time).toISOString() : "the time"
    return [`${name} continues at its first record at or after ${moment}. Records are handled again, or left out, that lie between.`]
  }
  if (offset == null || Number.isNaN(offset)) return [`${name} is at offset ${partition.position} now.`]
  const first = `${name} continues at offset ${offset}. It is at offset ${partition.position} now.`
  const distance = offset - partition.position
  if (distance < 0) return [first, `Up to ${numberText(-distance)} records are handled again.`]
  if (distance > 0) return [first, `Up to ${numberText(distance)} records are jumped over, and not handled.`]
  return [first, "Nothing is repeated, and nothing is left out."]
}

function seek(channel, partition) {
  confirmAction({
    title: `Move the position of ${nameOf(partition)}?`,
    confirm: "Seek",
    fields: [
      { name: "where", label: "Continue", kind: "select", options: WHERE },
      { name: "offset", label: "Offset", kind: "number", shown: ({ where }) => where === "offset" },
      { name: "time", label: "Time", kind: "datetime-local", shown: ({ where }) => where === "timestamp" },
    ],
    says: (values) => [
      ...seekText(partition, values),
      "The committed position moves with the next record that is settled.",
    ],
    run: ({ where, offset, time }) => {
      const to = where === "timestamp" ? { timestamp: new Date(time).toISOString() }
        : { offset: where === "offset" ? offset : where }
      return postToChannel(channel, "seek", { topic: partition.topic, partition: partition.partition, ...to })
    },
  })
}

// -- a record

// The record that an operator most likely wants to skip: poison, or the one that the channel has failed for.
function suspect(channel) {
  return channel.poison[0] || (channel.last_error && channel.last_error.record)
}

function skip(channel, record) {
  const topics = [...new Set([...channel.partitions?.map((one) => one.topic) || [], ...channel.topics])]
  const hasFailed = channel.state === "failed"
  confirmAction({
    title: `Skip a record of channel ${channel.channel}?`,
    confirm: "Skip",
    fields: [
      { name: "topic", label: "Topic", kind: "text", value: record ? record.topic : topics[0] },
      { name: "partition", label: "Partition", kind: "number", value: record && record.partition },
      { name: "offset", label: "Offset", kind: "number", value: record && record.offset },
      ...(hasFailed ? [{ name: "restarts", label: "Restart the channel after it", kind: "checkbox", value: true }] : []),
    ],
    says: ({ topic, partition, offset, restarts }) => [
      `The record at ${topic}-${partition ?? "?"} offset ${offset ?? "?"} counts as settled, without being handled. A handler that has it is cancelled.`,
      "It is written to no dead-letter topic: note its offset.",
      ...(restarts ? [`Then channel ${channel.channel} starts again from its committed positions.`] : []),
    ],
    run: async ({ topic, partition, offset, restarts }) => {
      const skipped = await postToChannel(channel, "skip", { topic, partition, offset })
      if (!restarts || skipped.status >= 300 || !skipped.status) return skipped
      const restarted = await postToChannel(channel, "restart", {})
      return { ...restarted, words: `${skipped.words}; restart: ${restarted.words}` }
    },
  })
}

export function skipIn(name, record) {
  if (newest.has(name)) skip(newest.get(name), record)
}

// -- buttons

// Returns what has to change for the buttons of a channel to be other ones.
export function buttonsKey(channel) {
  return JSON.stringify([isPossible, channel.state, channel.paused_by, suspect(channel)])
}

// The buttons in the row of a channel: what helps in its state.
export function rowButtons(channel) {
  if (!isPossible) return []
  const name = channel.channel
  const made = []
  const record = suspect(channel)
  const isStopped = channel.state === "stopped"
  if (record && (channel.poison.length || channel.state === "failed")) {
    made.push(button("skip", `skip a record of channel ${name}`, () => skip(now(channel), record)))
  }
  if (channel.state === "failed") made.push(button("restart", `restart channel ${name}`, () => restart(now(channel))))
  else if (isStopped) made.push(button("start", `start channel ${name}`, () => start(now(channel))))
  else if (channel.paused_by.length) made.push(button("resume", `resume channel ${name}`, () => resume(now(channel))))
  else made.push(button("pause", `pause channel ${name}`, () => pause(now(channel))))
  const bar = element("span", "row-actions")
  bar.append(...made)
  return [bar]
}

export function partitionButtons(channel, partition) {
  if (!isPossible) return []
  const name = nameOf(partition)
  const pausing = partition.paused
    ? button("resume", `resume partition ${name}`, () => resume(now(channel), partition))
    : button("pause", `pause partition ${name}`, () => pause(now(channel), partition))
  const seeking = button("seek", `seek in partition ${name}`, () => seek(now(channel), partitionNow(channel, partition)))
  const bar = element("span", "row-actions")
  bar.append(pausing, seeking)
  return [bar]
}

// The bar of buttons above a channel's tables. It says why there are none.
export class ChannelBar {
  constructor() {
    this.node = element("div", "actions")
    this.node.setAttribute("role", "group")
    this.node.setAttribute("aria-label", "actions")
    this.drawn = null
    this.channel = null
  }

  update(channel) {
    this.channel = channel
    const key = `${isPossible} ${channel.state} ${channel.paused_by.length > 0}`
    if (key === this.drawn) return
    this.drawn = key
    if (!isPossible) {
      this.node.replaceChildren(element("p", "why", NO_TOKEN))
      return
    }
    const hadFocus = this.node.contains(document.activeElement)
    const isStopped = channel.state === "stopped"
    const hasFailed = channel.state === "failed"
    this.node.replaceChildren(...[
      !hasFailed && !isStopped && button("pause", "pause", () => pause(this.channel)),
      channel.paused_by.length > 0 && button("resume", "resume", () => resume(this.channel)),
      hasFailed && button("restart", "restart", () => restart(this.channel)),
      isStopped && button("start", "start", () => start(this.channel)),
      !isStopped && button("stop", "stop", () => stop(this.channel)),
      button("skip a record", "skip a record", () => skip(this.channel, suspect(this.channel))),
    ].filter(Boolean))
    if (hadFocus) this.node.querySelector("button").focus()
  }
}

// The bar of the first screen: what belongs to no channel.
export class ApplicationBar {
  constructor() {
    this.node = element("div", "actions")
    this.drawn = null
  }

  update() {
    if (this.drawn === isPossible) return
    this.drawn = isPossible
    this.node.replaceChildren(isPossible
      ? button("log level", "log level", setLogLevel)
      : element("p", "why", NO_TOKEN))
  }
}

function setLogLevel() {
  confirmAction({
    title: "Set a log level?",
    confirm: "Set",
    fields: [
      { name: "logger", label: "Logger", kind: "text", value: "reactive_kafka" },
      { name: "level", label: "Level", kind: "select", value: "info", options: LEVELS.map((one) => [one, one]) },
    ],
    says: ({ logger, level }) => [`The logger ${logger} has level ${level} until the process ends, or the level is set again.`],
    run: (values) => ask("POST", "api/log-level", values),
  })
}

// -- dead letters

const LETTER_COLUMNS = [
  ["letter", (one) => `${one.partition} ${numberText(one.offset)}`],
  ["time", (one) => (one.timestamp_ms == null ? "" : timeText(one.timestamp_ms))],
  ["record", (one) => (one.origin ? `${nameOf(one.origin)} offset ${one.origin.offset}` : "unknown")],
  ["reason", (one) => [one.exception, one.reason].filter(Boolean).join(": ")],
  ["key", (one) => one.key],
  ["value", (one) => one.value],
]

// The last letters of a topic, or those of one record; with buttons to read them and to send them back.
export class Letters {
  constructor(topic, origin) {
    this.topic = topic
    this.query = new URLSearchParams(origin ? { last: LETTERS_SEARCHED, ...origin } : { last: LETTERS })
    this.reads = origin
      ? `The last ${numberText(LETTERS_SEARCHED)} records of ${topic} are searched for the letter of ${nameOf(origin)} offset ${origin.offset}.`
      : `The last ${LETTERS} records of ${topic} are read, with their keys and values.`
    this.node = element("section")
    const bar = element("div", "actions")
    this.said = element("p", "said")
    this.said.setAttribute("role", "status")
    bar.append(button("look", `look at the dead letters of ${topic}`, () => this.look()))
    if (!origin) bar.append(button("replay all", `replay all dead letters of ${topic}`, () => this.replayAll()))
    const place = (one) => `${one.partition} ${one.offset}`
    this.table = new Table("", [...LETTER_COLUMNS, ["actions", place, (cell, one) => {
      cell.replaceChildren(button("replay", `replay the letter ${place(one)}`, () => this.replayOne(one)))
    }]], "letters", place)
    this.table.update([])
    this.node.append(element(origin ? "h4" : "h2", "", `Dead letters in ${topic}`), bar, this.said, this.table.node)
  }

  look() {
    if (hasToken()) {
      this.read().then((answer) => {
        // The token has changed meanwhile: the dialog asks for it.
        if (answer.status === 401) this.askToLook()
      })
    } else {
      this.askToLook()
    }
  }

  askToLook() {
    confirmAction({
      title: "Look at dead letters?",
      confirm: "Look",
      says: () => [this.reads, "Nothing changes."],
      run: () => this.read(),
    })
  }

  async read() {
    setText(this.said, `reading ${this.topic}`)
    const answer = await ask("GET", `api/dlq/${pathOf(this.topic)}?${this.query}`)
    setText(this.said, answer.words)
    if (answer.status === 200) this.table.update(answer.body.letters)
    return answer
  }

  replayOne(letter) {
    const origin = letter.origin
    confirmAction({
      title: "Replay a dead letter?",
      confirm: "Replay",
      says: () => [
        `The letter at ${this.topic}-${letter.partition} offset ${letter.offset} is written to ` +
          `${origin ? origin.topic : "the topic that it came from"}, and handled again there. The letter stays.`,
        ...(origin ? [`It was the record ${nameOf(origin)} offset ${origin.offset}.`] : []),
      ],
      run: (_, progress) => this.replay({ partition: letter.partition, offset: letter.offset }, progress),
    })
  }

  replayAll() {
    confirmAction({
      title: `Replay the dead letters of ${this.topic}?`,
      confirm: "Replay",
      fields: [{ name: "limit", label: "At most", kind: "number", optional: true }],
      says: ({ limit }) => [
        limit
          ? `The oldest ${numberText(limit)} letters of ${this.topic} that were not replayed before are written to the topics that they came from.`
          : `All letters of ${this.topic} that were not replayed before are written to the topics that they came from.`,
        "They are handled again there. The letters stay.",
      ],
      run: ({ limit }, progress) => this.replay(limit ? { limit } : {}, progress),
    })
  }

  // Resolves at the end of the replay, or when nobody looks any more.
  async replay(body, progress) {
    let answer = await ask("POST", `api/dlq/${pathOf(this.topic)}/replay`, body)
    while (answer.status === 202) {
      const { records, replayed, replay } = answer.body
      const isWatched = progress(answer.words, records ? replayed / records : null)
      setText(this.said, answer.words)
      if (!isWatched) return answer
      await new Promise((resolve) => setTimeout(resolve, PROGRESS_MS))
      answer = await ask("GET", `api/dlq/replays/${pathOf(replay)}`)
    }
    setText(this.said, answer.words)
    return answer
  }
}

export function poisonButtons(channel, record) {
  if (!isPossible) return []
  const place = `${nameOf(record)} offset ${record.offset}`
  return [button("skip", `skip ${place}, unsettled for ${ageText(record.age_seconds)}`, () => skip(now(channel), record))]
}
