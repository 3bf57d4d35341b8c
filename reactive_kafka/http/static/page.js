// The live page: reads GET /api/stream, and redraws what has changed.
//
// Whatever comes from users (names of topics, errors, payloads) becomes text through textContent.
// There is no HTML in strings here, and the page's Content-Security-Policy forbids it.
"use strict"

const ROOT = new URL("..", document.currentScript.src)
const MOST_ROWS = 50
const LAGS_KEPT = 60
const RETRY_MS = [500, 1000, 2000, 5000]
// The stream sends something every second.
const SILENCE_MS = 10_000
const TOKEN_KEY = "reactive_kafka token"
const SVG = "http://www.w3.org/2000/svg"

// -- words for numbers, as in page_html.py

const thousands = new Intl.NumberFormat("en", { maximumFractionDigits: 0 })

function numberText(number) {
  return number == null ? "-" : thousands.format(number).replaceAll(",", "\u202f")
}

function rateText(perSecond) {
  if (perSecond == null) return "-"
  return perSecond < 10 ? perSecond.toFixed(1) : numberText(Math.round(perSecond))
}

function durationText(seconds) {
  const whole = Math.floor(seconds)
  const units = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]
  for (const [size, unit, partSize, part] of units) {
    if (whole >= size) {
      const rest = Math.floor((whole % size) / partSize)
      return `${Math.floor(whole / size)} ${unit}${rest ? ` ${rest} ${part}` : ""}`
    }
  }
  return `${whole} s`
}

function ageText(seconds) {
  if (seconds == null) return "-"
  if (seconds < 1) return `${Number((seconds * 1000).toPrecision(3))} ms`
  return seconds < 60 ? `${seconds.toFixed(1)} s` : durationText(seconds)
}

function percentilesText(seconds) {
  return seconds.p50 == null ? "-" : `${ageText(seconds.p50)} / ${ageText(seconds.p99)}`
}

function lagText(channel) {
  const change = channel.lag_per_second
  const lag = numberText(channel.lag)
  return change ? `${lag} (${change > 0 ? "+" : ""}${change}/s)` : lag
}

function timeText(at) {
  return new Date(at).toLocaleTimeString()
}

function errorText(error) {
  return error == null ? "" : `${timeText(error.at)} ${error.type}: ${error.text}`
}

// -- elements

function element(tag, className, text) {
  const made = document.createElement(tag)
  if (className) made.className = className
  if (text != null) made.textContent = text
  return made
}

function drawing(tag, attributes) {
  const made = document.createElementNS(SVG, tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  return made
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text
}

function list(node, texts) {
  const joined = texts.join("\n")
  if (node.dataset.texts === joined) return
  node.dataset.texts = joined
  node.replaceChildren(...texts.map((text) => element("li", "", text)))
  node.hidden = !texts.length
}

// The columns of words, which begin at the left. Numbers end at the right.
const WORDS = new Set(["channel", "topic and group", "handler", "last error", "topic", "mode", "session", "batch",
  "progress", "ranges", "reason", "outcome", "ended", "partition", "marks", "state", "time", "kind",
  "what happened"])

// A table that keeps its rows, and changes only the cells whose content is another one.
class Table {
  // columns: [label, text of an item, draw(cell, item) if it is more than text]
  constructor(heading, columns, className, keyOf, rowClass) {
    this.columns = columns
    this.keyOf = keyOf
    this.rowClass = rowClass || (() => "")
    this.rows = new Map()
    this.showsAll = false
    this.items = []
    this.node = element("section")
    if (heading) this.node.append(element("h2", "", heading))
    const scroll = element("div", "scroll")
    const table = element("table", className)
    const head = element("tr")
    for (const [label] of columns) {
      const cell = element("th", WORDS.has(label) ? "words" : "", label)
      cell.scope = "col"
      head.append(cell)
    }
    table.append(element("thead"), element("tbody"))
    table.tHead.append(head)
    this.body = table.tBodies[0]
    scroll.append(table)
    this.more = element("button")
    this.more.type = "button"
    this.more.onclick = () => {
      this.showsAll = !this.showsAll
      this.update(this.items)
    }
    this.node.append(scroll, this.more)
  }

  update(items) {
    this.items = items
    const shown = this.showsAll ? items : items.slice(0, MOST_ROWS)
    this.node.hidden = !items.length
    this.more.hidden = items.length <= MOST_ROWS
    setText(this.more, this.showsAll ? `show ${MOST_ROWS}` : `show all ${numberText(items.length)}`)
    const left = new Set(this.rows.keys())
    let next = this.body.firstChild
    for (const item of shown) {
      const key = this.keyOf(item)
      left.delete(key)
      let row = this.rows.get(key)
      if (!row) {
        row = this.newRow()
        this.rows.set(key, row)
      }
      this.fill(row, item)
      if (row.node === next) next = next.nextSibling
      else this.body.insertBefore(row.node, next)
    }
    for (const key of left) {
      this.rows.get(key).node.remove()
      this.rows.delete(key)
    }
  }

  newRow() {
    const node = element("tr")
    for (const [label] of this.columns) {
      const cell = element("td", WORDS.has(label) ? "words" : "")
      cell.dataset.label = label
      node.append(cell)
    }
    return { node, drawn: [], className: "" }
  }

  fill(row, item) {
    const className = this.rowClass(item)
    if (className !== row.className) {
      row.className = className
      row.node.className = className
    }
    this.columns.forEach(([, textOf, draw], place) => {
      const text = String(textOf(item) ?? "")
      if (row.drawn[place] === text) return
      row.drawn[place] = text
      const cell = row.node.cells[place]
      if (draw) draw(cell, item)
      else cell.textContent = text
    })
  }
}

// -- channels

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
  return [channel.reason, ...channel.warnings].filter(Boolean).join("; ")
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

const CHANNEL_COLUMNS = [
  ["channel", (one) => [one.channel, one.state, severity(one), aboutChannel(one)].join("\n"), drawName],
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
  ["last error", (one) => errorText(one.last_error)],
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

const POISON_COLUMNS = [
  ["channel", (one) => one.channel],
  ["partition", partitionName],
  ["offset", (one) => numberText(one.offset)],
  ["unsettled for", (one) => ageText(one.age_seconds)],
  ["waiting behind it", (one) => numberText(one.waiting)],
  ["on_poison", (one) => one.on_poison],
]

function poisonTable() {
  return new Table("Poison", POISON_COLUMNS, "", (one) => `${one.channel} ${partitionName(one)} ${one.offset}`, () => "down")
}

function poisonOf(channels) {
  return channels.flatMap(({ channel, poison, on_poison }) => poison.map((one) => ({ ...one, channel, on_poison })))
}

const HISTORY_COLUMNS = [
  ["time", (one) => timeText(one.at)],
  ["kind", (one) => one.kind],
  ["what happened", (one) => (one.count === 1 ? one.text : `${one.text} (${one.count} times)`)],
]

// -- Spark

function drawProgress(cell, batch) {
  const bar = element("progress")
  // Without a value the bar shows an unknown progress.
  if (batch.share != null) bar.value = batch.share
  bar.setAttribute("aria-label", `${batch.tasks_done} of ${batch.tasks} tasks`)
  cell.replaceChildren(bar)
}

function rangesText(ranges) {
  const named = ranges.slice(0, 2).join(", ")
  return ranges.length > 2 ? `${named} and ${ranges.length - 2} more` : named
}

const SESSION_COLUMNS = [
  ["channel", (one) => one.channel],
  ["mode", (one) => one.mode],
  ["session", (one) => (one.ready ? "ready" : one.reason || "not ready")],
  ...["ok", "failed", "cancelled", "lost"].map((outcome) => [outcome, (one) => one.jobs[outcome] || 0]),
]
const RUNNING_COLUMNS = [
  ["batch", (one) => `${one.channel} ${one.id.slice(0, 4)}`],
  ["progress", (one) => `${one.share} ${one.tasks_done}/${one.tasks}`, drawProgress],
  ["stage", (one) => `${one.stage}/${one.stages}`],
  ["tasks", (one) => `${one.tasks_done}/${one.tasks} (${one.tasks_active} running)`],
  ["failed", (one) => one.tasks_failed],
  ["records", (one) => numberText(one.records)],
  ["attempt", (one) => one.attempt],
  ["time", (one) => `${durationText(one.elapsed_seconds)} of ${durationText(one.timeout_seconds)}`],
  ["ranges", (one) => rangesText(one.ranges)],
]
const LAST_COLUMNS = [
  ["batch", (one) => `${one.channel} ${one.id.slice(0, 4)}`],
  ["ended", (one) => (one.ended_at ? timeText(one.ended_at) : "")],
  ["took", (one) => `${one.elapsed_seconds.toFixed(2)} s`],
  ["records", (one) => numberText(one.records)],
  ["rejected", (one) => one.rejected || ""],
  ["attempt", (one) => one.attempt],
  ["outcome", (one) => one.outcome, (cell, one) => {
    cell.replaceChildren(element("span", `badge ${one.outcome === "ok" ? "" : "down"}`, one.outcome))
  }],
  ["ranges", (one) => rangesText(one.ranges)],
  ["reason", (one) => one.reason],
]

class SparkView {
  constructor() {
    const byBatch = (one) => `${one.channel} ${one.id} ${one.attempt}`
    this.sessions = new Table("Spark", SESSION_COLUMNS, "", byName)
    this.running = new Table("Running batches", RUNNING_COLUMNS, "batches", byBatch)
    this.last = new Table("Last batches", LAST_COLUMNS, "batches", byBatch)
    this.nodes = [this.sessions.node, this.running.node, this.last.node]
  }

  update(sessions) {
    const of = (name) => sessions.flatMap((one) => one[name].map((batch) => ({ ...batch, channel: one.channel })))
    this.sessions.update(sessions)
    this.running.update(of("running"))
    const last = of("last").sort((one, other) => (other.ended_at || "").localeCompare(one.ended_at || ""))
    this.last.update(last.slice(0, 20))
  }
}

// -- the two views

class Overview {
  constructor() {
    this.incoming = channelTable("Incoming channels")
    this.outgoing = new Table("Outgoing channels", OUTGOING_COLUMNS, "outgoing", (one) => `${one.direction} ${one.channel}`,
      (one) => (one.status === "UP" ? "" : "down"))
    this.spark = new SparkView()
    this.poison = poisonTable()
    this.nodes = [this.incoming.node, this.poison.node, this.outgoing.node, ...this.spark.nodes]
  }

  update(facts) {
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
    this.notes = element("ul")
    this.summary = channelTable("")
    this.poison = poisonTable()
    this.partitions = new Table("Partitions", PARTITION_COLUMNS, "partitions", partitionName)
    this.partitions.node.firstChild.after(legend())
    this.totals = element("p")
    this.history = new Table("Rebalances and failures", HISTORY_COLUMNS, "history",
      (one) => `${one.at} ${one.kind} ${one.text}`)
    this.spark = new SparkView()
    this.nodes = [back, this.heading, this.notes, this.summary.node, this.poison.node,
      this.partitions.node, this.totals, this.history.node, ...this.spark.nodes]
  }

  update(facts) {
    const channel = facts.incoming.find((one) => one.channel === this.name)
    if (!channel) {
      list(this.notes, ["This channel does not run here now."])
      return
    }
    const paused = channel.paused_by.map((reason) => `paused: ${reason}`)
    const limited = channel.limited_by ? [`records wait for rate_limit = ${channel.limited_by}`] : []
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
}

function legend() {
  const made = element("p", "legend")
  const parts = [
    ["settled", "settled, waits for its commit or for a record before it"],
    ["open", "read and not settled"],
    ["unread", "in the log and not read"],
  ]
  for (const [kind, text] of parts) made.append(element("span", `swatch ${kind}`), text)
  return made
}

// -- the page

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
      application.members === 1 ? "1 member" : `${application.members} members`,
      application.state,
    ].filter(Boolean).join(" \u00b7 "))
    list(document.getElementById("reasons"), application.reasons.map((one) => `${one.name}: ${one.reason}`))
    this.view.update(this.facts)
  }

  lost(since) {
    this.show("away", "NO CONNECTION")
    const connection = document.getElementById("connection")
    if (connection) setText(connection, `no connection since ${since.toLocaleTimeString()}; trying again`)
  }
}

// -- the stream

function authorization() {
  const token = sessionStorage.getItem(TOKEN_KEY)
  return token ? { Authorization: `Bearer ${token}` } : {}
}

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
      sessionStorage.setItem(TOKEN_KEY, input.value)
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
        sessionStorage.removeItem(TOKEN_KEY)
        await signIn()
        continue
      }
      if (!answer.ok) throw new Error(`${answer.status}`)
      await readStream(answer, alive, (facts) => {
        failures = 0
        since = null
        page.take(facts)
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
