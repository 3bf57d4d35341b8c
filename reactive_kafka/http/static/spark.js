// Spark: its sessions, the batches that run with their stages and tasks, those that have ended, and
// when each of them ran.

import { Table, ageText, drawing, durationText, element, legend, numberText, setText, timeText } from "./elements.js"

const MOST_LAST = 20

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

// A bar on a time axis that all batches share: it ends now, at the right.

const WIDTH = 200
const OUTCOMES = [["running", "runs"], ["settled", "ok"], ["failed", "failed"], ["unread", "cancelled or lost"]]

function kindOf(batch) {
  if (batch.outcome == null) return "running"
  return { ok: "settled", failed: "failed" }[batch.outcome] || "unread"
}

// How long ago a batch began.
function beganAgo(batch) {
  return (batch.ended_seconds_ago || 0) + batch.elapsed_seconds
}

function whenText(batch) {
  const began = `began ${durationText(beganAgo(batch))} ago`
  return batch.outcome == null ? `${began}, runs` : `${began}, took ${ageText(batch.elapsed_seconds)}, ${batch.outcome}`
}

function drawWhen(cell, batch) {
  const scale = WIDTH / batch.axis
  const picture = drawing("svg", {
    class: "when", role: "img", viewBox: "0 0 200 12", preserveAspectRatio: "none", "aria-label": whenText(batch),
  })
  const width = Math.max(batch.elapsed_seconds * scale, 1)
  const start = Math.min(WIDTH - beganAgo(batch) * scale, WIDTH - width)
  picture.append(drawing("rect", { class: kindOf(batch), x: start.toFixed(2), width: width.toFixed(2), height: 12 }))
  cell.replaceChildren(picture)
}

const WHEN = ["when", (one) => `${whenText(one)} ${one.axis.toFixed(1)} ${beganAgo(one).toFixed(1)}`, drawWhen]

const RUNNING_COLUMNS = [
  ["batch", (one) => `${one.channel} ${one.id.slice(0, 4)}`],
  ["progress", (one) => `${one.share} ${one.tasks_done}/${one.tasks}`, drawProgress],
  WHEN,
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
  WHEN,
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

export class SparkView {
  constructor() {
    const byBatch = (one) => `${one.channel} ${one.id} ${one.attempt}`
    this.sessions = new Table("Spark", SESSION_COLUMNS, "", (one) => one.channel)
    this.running = new Table("Running batches", RUNNING_COLUMNS, "batches", byBatch)
    this.last = new Table("Last batches", LAST_COLUMNS, "batches", byBatch)
    this.axis = element("div")
    this.axisText = element("p", "legend")
    this.axis.append(legend(OUTCOMES), this.axisText)
    this.nodes = [this.sessions.node, this.axis, this.running.node, this.last.node]
  }

  update(sessions) {
    const of = (name) => sessions.flatMap((one) => one[name].map((batch) => ({ ...batch, channel: one.channel })))
    const running = of("running")
    const last = of("last").sort((one, other) => one.ended_seconds_ago - other.ended_seconds_ago).slice(0, MOST_LAST)
    const axis = Math.max(1, ...[...running, ...last].map(beganAgo))
    for (const batch of [...running, ...last]) batch.axis = axis
    this.sessions.update(sessions)
    this.axis.hidden = !running.length && !last.length
    setText(this.axisText, `The bars of all batches have one time axis, from ${durationText(axis)} ago until now.`)
    this.running.update(running)
    this.last.update(last)
  }
}
