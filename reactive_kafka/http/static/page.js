// The live page: reads GET /api/stream, and redraws what has changed.

import {
  ApplicationBar, ChannelBar, Letters, buttonsKey, canAct, partitionButtons, poisonButtons, rowButtons, takeFacts,
} from "./actions.js"
import {
  Table, ageText, drawing, durationText, element, errorText, legend, list, numberText, rateText, setText, timeText,
} from "./elements.js"
import { Members } from "./members.js"
import { RecordForm } from "./record.js"
import { SparkView } from "./spark.js"
import { ROOT, authorization, dropToken, keepToken } from "./service.js"

const LAGS_KEPT = 60
const RETRY_MS = [500, 1000, 2000, 5000]
// The stream sends something every second.
const SILENCE_MS = 10_000

// -- channels

function percentilesText(seconds) {
  return seconds.p50 == null ? "-" : `${ageText(seconds.p50)} / ${ageText(seconds.p99)}`
}

function lagText(channel) {
  const change = channel.lag_per_second
  const lag = numberText(channel.lag)
  return change ? `${lag} (${change > 0 ? "+" : ""}${change}/s)` : lag
}

// Channel -> its lag in the last minute.
const lags = new Map()

function severity(channel) {
  if (channel.status === "DOWN" || channel.poison.length) return 2
  return channel.warnings.length || channel.state === "paused" ? 1 : 0
}

function severityClass(channel) {
  return ["", "warn", "down"][severity(channel)]
}

function badge(channel) {
  const state = channel.poison?.length ? "poison" : channel.state
  return element("span", `badge ${severityClass(channel)}`, state)
}

function aboutChannel(channel) {
  return [channel.reason, ...channel.warnings, channel.outbox].filter(Boolean).join("; ")
}

function drawNameAndButtons(cell, channel) {
  drawName(cell, channel)
  cell.append(...rowButtons(channel))
}

function drawName(cell, channel) {
  const link = element("a", "", channel.channel)
  link.href = new URL(`channels/${encodeURIComponent(channel.channel)}`, ROOT)
  const about = aboutChannel(channel)
  cell.replaceChildren(link, " ", badge(channel))
  if (about) cell.append(element("small", "note", about))
}

function drawTopic(cell, channel) {
  const group = [channel.group && `group ${channel.group}`, channel.protocol].filter(Boolean)
  cell.replaceChildren(channel.topics.join(", "), element("small", "", group.join(" \u00b7 ")))
}

function drawHandlers(cell, channel) {
  cell.replaceChildren(...channel.handlers.flatMap((name) => {
    const place = name.lastIndexOf(".")
    return [element("span", "", name.slice(place + 1)), element("small", "", name.slice(0, Math.max(place, 0)))]
  }))
}

function drawLag(cell, channel) {
  const values = lags.get(channel.channel) || []
  const most = Math.max(1, ...values)
  const points = values.map((lag, place) => {
    const x = ((place + LAGS_KEPT - values.length) / (LAGS_KEPT - 1)) * 100
    return `${x.toFixed(1)},${(21 - (lag / most) * 20).toFixed(1)}`
  })
  let picture = cell.querySelector("svg")
  if (!picture) {
    picture = drawing("svg", { class: "spark", viewBox: "0 0 100 22", role: "img", preserveAspectRatio: "none" })
    picture.append(drawing("polyline", {}))
    cell.replaceChildren(element("span"), picture)
  }
  setText(cell.firstChild, lagText(channel))
  picture.firstChild.setAttribute("points", points.join(" "))
  picture.setAttribute("aria-label", `lag of the last minute: ${numberText(values[0])} to ${lagText(channel)}`)
}

// A long error has five lines; the channel's page has it whole, on its time line.
function drawError(cell, channel) {
  const text = element("span", "clamped", errorText(channel.last_error))
  text.title = text.textContent
  cell.replaceChildren(...(channel.last_error ? [text] : []))
}

const CHANNEL_COLUMNS = [
  ["channel", (one) => [one.channel, one.state, severity(one), aboutChannel(one), buttonsKey(one)].join("\n"), drawNameAndButtons],
  ["topic and group", (one) => [...one.topics, one.group, one.protocol].join("\n"), drawTopic],
  ["handler", (one) => one.handlers.join("\n"), drawHandlers],
  ["in/s", (one) => rateText(one.received_per_second)],
  ["out/s", (one) => rateText(one.settled_per_second)],
  ["lag", (one) => `${lagText(one)} ${lags.get(one.channel)}`, drawLag],
  ["in flight", (one) => numberText(one.in_flight)],
  ["oldest", (one) => ageText(one.oldest_unacked_seconds)],
  ["p50 / p99", (one) => percentilesText(one.handler_seconds)],
  ["retries", (one) => numberText(one.retries)],
  ["letters", (one) => numberText(one.dead_lettered)],
  ["poison", (one) => numberText(one.poison.length)],
  ["last error", (one) => errorText(one.last_error), drawError],
]

const OUTGOING_COLUMNS = [
  ["channel", (one) => [one.channel, one.state, one.status, one.reason].join("\n"), (cell, one) => {
    const state = element("span", `badge ${one.status === "UP" ? "" : "down"}`, one.state)
    cell.replaceChildren(one.channel, " ", state)
    if (one.reason) cell.append(element("small", "note", one.reason))
  }],
  ["topic", (one) => one.topic],
  ["sent", (one) => numberText(one.sent.ok || 0)],
  ["failed", (one) => numberText(one.sent.failed || 0)],
  ["sent/s", (one) => rateText(one.sent_per_second)],
  ["in flight", (one) => numberText(one.in_flight)],
  ["p50 / p99", (one) => percentilesText(one.send_seconds)],
  ["last error", (one) => errorText(one.last_error)],
]

const byName = (one) => one.channel

function channelTable(heading) {
  return new Table(heading, CHANNEL_COLUMNS, "channels", byName, severityClass)
}

// The row of a channel on its own page, where the buttons are in a bar.
function summaryTable() {
  const [[label, textOf], ...others] = CHANNEL_COLUMNS
  return new Table("", [[label, textOf, drawName], ...others], "channels", byName, severityClass)
}

// -- partitions, with the rules of partition_marks.py

const WIDTH = 200
const READ_SHARE = 0.75

function marks(partition) {
  const { position, committed, log_end: logEnd, settled_above: settled } = partition
  const begins = committed ?? (settled.length ? settled[0][0] : position)
  const start = Math.min(begins, position)
  const unread = Math.max(0, (logEnd ?? position) - position)
  const read = position - start
  if (!read) return unread ? [["unread", 0, WIDTH]] : []
  const width = unread ? WIDTH * READ_SHARE : WIDTH
  const found = [["open", 0, width]]
  for (const [first, after] of settled) {
    const begin = ((Math.max(first, start) - start) / read) * width
    const end = ((Math.min(after, position) - start) / read) * width
    if (end > begin) found.push(["settled", begin, Math.max(end - begin, 1)])
  }
  if (unread) found.push(["unread", width, WIDTH - width])
  return found
}

function marksText(partition) {
  const settled = partition.settled_above.map(([first, after]) => `${first} to ${after - 1}`)
  return `${partitionName(partition)}: committed ${partition.committed ?? "nothing"}, ` +
    `settled above it ${settled.join(", ") || "nothing"}, ` +
    `read ${partition.position}, end ${partition.log_end ?? "unknown"}`
}

function drawMarks(cell, partition) {
  const picture = drawing("svg", {
    class: "marks", role: "img", viewBox: "0 0 200 12", preserveAspectRatio: "none",
    "aria-label": marksText(partition),
  })
  for (const [kind, start, width] of marks(partition)) {
    picture.append(drawing("rect", { class: kind, x: start.toFixed(2), width: width.toFixed(2), height: 12 }))
  }
  cell.replaceChildren(picture)
}

function partitionName(one) {
  return `${one.topic}-${one.partition}`
}

function worstFirst(channel) {
  const poisoned = new Set(channel.poison.map(partitionName))
  return (one, other) =>
    poisoned.has(partitionName(other)) - poisoned.has(partitionName(one)) ||
    (other.lag || 0) - (one.lag || 0) ||
    (other.oldest_unacked_seconds || 0) - (one.oldest_unacked_seconds || 0) ||
    one.topic.localeCompare(other.topic) || one.partition - other.partition
}

const MARKS = [
  ["settled", "settled, waits for its commit or for a record before it"],
  ["open", "read and not settled"],
  ["unread", "in the log and not read"],
]

const PARTITION_COLUMNS = [
  ["partition", partitionName],
  ["marks", marksText, drawMarks],
  ["committed", (one) => numberText(one.committed)],
  ["read", (one) => numberText(one.position)],
  ["end", (one) => numberText(one.log_end)],
  ["lag", (one) => numberText(one.lag)],
  ["in flight", (one) => numberText(one.in_flight)],
  ["queued", (one) => numberText(one.queued)],
  ["oldest", (one) => ageText(one.oldest_unacked_seconds)],
  ["state", (one) => (one.done ? "done" : one.paused ? "paused" : "")],
]

// The text of a cell with buttons: they are drawn again when it changes.
function actKey(one) {
  return `${canAct()} ${one.paused} ${one.offset}`
}

const POISON_COLUMNS = [
  ["channel", (one) => one.channel],
  ["partition", partitionName],
  ["offset", (one) => numberText(one.offset)],
  ["unsettled for", (one) => ageText(one.age_seconds)],
  ["waiting behind it", (one) => numberText(one.waiting)],
  ["on_poison", (one) => one.on_poison],
  ["actions", actKey, (cell, one) => cell.replaceChildren(...poisonButtons(one.of, one))],
]

function poisonTable() {
  return new Table("Poison", POISON_COLUMNS, "", (one) => `${one.channel} ${partitionName(one)} ${one.offset}`, () => "down")
}

function poisonOf(channels) {
  return channels.flatMap((of) => of.poison.map((one) => ({ ...one, of, channel: of.channel, on_poison: of.on_poison })))
}

const HISTORY_COLUMNS = [
  ["time", (one) => timeText(one.at)],
  ["kind", (one) => one.kind],
  ["what happened", (one) => (one.count === 1 ? one.text : `${one.text} (${one.count} times)`)],
]

// -- the two views

class Overview {
  constructor() {
    this.bar = new ApplicationBar()
    this.record = new RecordForm()
    this.members = new Members()
    this.none = element("p", "", "This application has no channels.")
    this.incoming = channelTable("Incoming channels")
    this.outgoing = new Table("Outgoing channels", OUTGOING_COLUMNS, "outgoing", (one) => `${one.direction} ${one.channel}`,
      (one) => (one.status === "UP" ? "" : "down"))
    this.spark = new SparkView()
    this.poison = poisonTable()
    this.nodes = [this.bar.node, this.members.workers, this.none, this.incoming.node, this.poison.node, this.outgoing.node, ...this.spark.nodes,
      this.members.node, this.record.node]
  }

  update(facts) {
    this.bar.update()
    this.none.hidden = facts.incoming.length + facts.outgoing.length > 0
    this.record.update(facts.incoming)
    // Array.sort keeps the order of equal channels.
    this.incoming.update([...facts.incoming].sort((one, other) => severity(other) - severity(one)))
    this.poison.update(poisonOf(facts.incoming))
    this.outgoing.update(facts.outgoing)
    this.spark.update(facts.sessions)
  }
}

class ChannelView {
  constructor(name) {
    this.name = name
    const back = element("p")
    const link = element("a", "", "all channels")
    link.href = ROOT
    back.append(link)
    this.heading = element("h2", "", name)
    this.members = new Members(name)
    this.notes = element("ul")
    this.summary = summaryTable()
    this.poison = poisonTable()
    this.bar = new ChannelBar()
    this.channel = null
    const actions = ["actions", actKey, (cell, one) => cell.replaceChildren(...partitionButtons(this.channel, one))]
    this.partitions = new Table("Partitions", [...PARTITION_COLUMNS, actions], "partitions", partitionName)
    this.partitions.node.firstChild.after(legend(MARKS))
    this.totals = element("p")
    this.history = new Table("Rebalances and failures", HISTORY_COLUMNS, "history",
      (one) => `${one.at} ${one.kind} ${one.text}`)
    this.spark = new SparkView()
    // Made when it is known where the channel writes its dead letters.
    this.letters = null
    this.lettersPlace = element("div")
    this.record = new RecordForm()
    this.nodes = [back, this.heading, this.members.workers, this.bar.node, this.notes, this.summary.node, this.poison.node,
      this.partitions.node, this.totals, this.record.node, this.lettersPlace, this.history.node, ...this.spark.nodes]
  }

  update(facts) {
    const channel = facts.incoming.find((one) => one.channel === this.name)
    if (!channel) {
      list(this.notes, ["This channel does not run here now."])
      return
    }
    this.channel = channel
    this.bar.update(channel)
    this.record.update([channel])
    this.updateLetters(channel.dead_letter_topic)
    const paused = channel.paused_by.map((reason) => `paused: ${reason}`)
    const limited = channel.limited_by ? [`records wait for ${channel.limited_by}`] : []
    list(this.notes, [...paused, ...limited])
    this.summary.update([channel])
    this.poison.update(poisonOf([channel]))
    this.partitions.update([...channel.partitions].sort(worstFirst(channel)))
    setText(this.totals, [
      ["received", "received"], ["acked", "acked"], ["nacked", "nacked"],
      ["dead letters", "dead_lettered"], ["outputs lost", "outputs_lost"],
      ["delayed retries", "delayed"], ["poison", "poisoned"],
    ].map(([label, key]) => `${label} ${numberText(channel[key])}`).join(", "))
    this.history.update(channel.history || [])
    this.spark.update(facts.sessions.filter((one) => one.channel === this.name))
  }

  updateLetters(topic) {
    const wanted = canAct() ? topic : null
    if (wanted === (this.letters && this.letters.topic)) return
    this.letters = wanted && new Letters(wanted)
    this.lettersPlace.replaceChildren(...(this.letters ? [this.letters.node] : []))
  }
}

// -- the page

function membersText(count) {
  return count === 1 ? "1 member" : `${count} members`
}

class Page {
  constructor() {
    const place = location.pathname.slice(ROOT.pathname.length)
    this.channel = place.startsWith("channels/") ? decodeURIComponent(place.slice("channels/".length)) : ""
    this.view = null
    this.facts = null
    this.states = new Map()
    this.title = document.title
    this.announcement = element("div", "unseen")
    this.announcement.setAttribute("role", "status")
    document.body.append(this.announcement)
    document.addEventListener("visibilitychange", () => this.draw())
  }

  // Takes over what the server has drawn.
  begin() {
    if (this.view) return
    const header = document.querySelector("header")
    if (!document.getElementById("state")) {
      // The page that asks for the token has no facts.
      header.replaceChildren(element("h1"), element("p"), element("p"))
      header.firstChild.append(element("a"), " ", element("span", "badge"))
      header.firstChild.firstChild.href = ROOT
      header.firstChild.lastChild.id = "state"
      header.children[1].id = "about"
      header.children[2].id = "connection"
      header.children[2].setAttribute("role", "status")
      header.after(element("ul"))
      header.nextSibling.id = "reasons"
    }
    const clock = element("span")
    clock.id = "clock"
    header.prepend(clock)
    const reasons = document.getElementById("reasons")
    if (reasons.tagName !== "UL") {
      const made = element("ul")
      made.id = "reasons"
      reasons.replaceWith(made)
    }
    this.view = this.channel ? new ChannelView(this.channel) : new Overview()
    document.querySelector("main").replaceChildren(...this.view.nodes)
  }

  take(facts) {
    this.facts = facts
    for (const channel of facts.incoming) {
      const kept = lags.get(channel.channel) || []
      lags.set(channel.channel, kept)
      if (channel.lag != null) kept.push(channel.lag)
      if (kept.length > LAGS_KEPT) kept.shift()
    }
    takeFacts(facts)
    this.begin()
    this.showState()
    this.announce()
    this.draw()
  }

  showState() {
    const { application, incoming } = this.facts
    let state = "up"
    if (incoming.some((one) => one.poison.length)) state = "poison"
    if (application.status === "DOWN") state = "down"
    this.show(state, state.toUpperCase())
    setText(document.getElementById("connection"), "")
  }

  show(state, words) {
    const name = this.facts ? this.facts.application.name : ""
    const title = [words, name, this.channel].filter(Boolean).join(" - ")
    if (document.title !== title) document.title = title
    const icon = document.querySelector("link[rel=icon]")
    const href = new URL(`static/${state}.svg`, ROOT).href
    if (icon.href !== href) icon.href = href
    document.querySelector("header").className = state
    const shown = document.getElementById("state")
    if (shown) {
      shown.className = `badge ${state}`
      setText(shown, words)
    }
  }

  // Says state changes, and nothing else, to people who hear the page.
  announce() {
    const said = []
    const { application, incoming, outgoing } = this.facts
    for (const one of [{ channel: application.name, state: application.status, direction: "" }, ...incoming, ...outgoing]) {
      const key = `${one.direction} ${one.channel}`
      const state = one.poison?.length ? "poison" : one.state
      const before = this.states.get(key)
      if (before !== undefined && before !== state) said.push(`${one.channel}: ${state}, was ${before}`)
      this.states.set(key, state)
    }
    if (said.length) this.announcement.textContent = said.slice(0, 5).join("; ")
  }

  draw() {
    if (!this.facts || document.hidden) return
    const { application } = this.facts
    setText(document.querySelector("h1 a"), application.name)
    setText(document.getElementById("clock"), new Date().toLocaleTimeString())
    setText(document.getElementById("about"), [
      application.version && `version ${application.version}`,
      `reactive_kafka ${application.library_version}`,
      `host ${application.host}`,
      `process ${application.pid}`,
      application.uptime_seconds != null && `up ${durationText(application.uptime_seconds)}`,
      this.view.members.count && membersText(this.view.members.count),
      application.state,
    ].filter(Boolean).join(" \u00b7 "))
    list(document.getElementById("reasons"), application.reasons.map((one) => `${one.name}: ${one.reason}`))
    this.view.update(this.facts)
  }

  lost(since) {
    this.warn("NO CONNECTION", `no connection since ${since.toLocaleTimeString()}; trying again`)
  }

  // What it shows is older than what the service says, and it must not look up to date.
  broken(error) {
    this.warn("OUT OF DATE", `this page cannot show what the service sends (${error.message}): load it again`)
  }

  warn(state, words) {
    this.show("away", state)
    const connection = document.getElementById("connection")
    if (connection) setText(connection, words)
  }
}

// -- the stream

// Resolves when the operator has typed a token.
function signIn() {
  return new Promise((resolve) => {
    const form = element("form", "actions")
    const label = element("label", "", "Token ")
    const input = element("input")
    input.type = "password"
    input.autocomplete = "off"
    label.append(input)
    form.append(label, element("button", "", "Open the page"))
    form.onsubmit = (event) => {
      event.preventDefault()
      keepToken(input.value)
      form.remove()
      resolve()
    }
    document.querySelector("main").prepend(form)
    input.focus()
  })
}

// Calls take() with the newest facts of an open stream until it ends.
async function readStream(answer, alive, take) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  let text = ""
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    alive()
    text += value
    const end = text.lastIndexOf("\n\n")
    if (end < 0) continue
    const events = text.slice(0, end).split("\n\n").filter((one) => one.startsWith("event: facts\n"))
    text = text.slice(end + 2)
    // Older facts are of no interest any more.
    if (events.length) take(JSON.parse(events.at(-1).slice("event: facts\ndata: ".length)))
  }
}

async function run() {
  const page = new Page()
  let failures = 0
  let since = null
  for (;;) {
    const stopped = new AbortController()
    let watch = 0
    const alive = () => {
      clearTimeout(watch)
      watch = setTimeout(() => stopped.abort(), SILENCE_MS)
    }
    try {
      alive()
      const url = new URL("api/stream", ROOT)
      url.searchParams.set("partitions", page.channel)
      const answer = await fetch(url, { headers: authorization(), signal: stopped.signal, cache: "no-store" })
      if (answer.status === 401) {
        clearTimeout(watch)
        dropToken()
        await signIn()
        continue
      }
      if (!answer.ok) throw new Error(`${answer.status}`)
      await readStream(answer, alive, (facts) => {
        failures = 0
        since = null
        try {
          page.take(facts)
        } catch (error) {
          // Another version of the service has started, or this page has a bug.
          page.broken(error)
          reportError(error)
        }
      })
    } catch {
      // The service is away. What the page shows says so.
    }
    clearTimeout(watch)
    since ??= new Date()
    page.lost(since)
    const wait = RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]
    await new Promise((resolve) => setTimeout(resolve, wait))
  }
}

run()
