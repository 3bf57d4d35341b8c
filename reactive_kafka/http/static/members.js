// The other processes of the service: workers of the same port, and the peers in [http] peers.

import { Table, durationText, element, numberText, setText } from "./elements.js"
import { ROOT, ask } from "./service.js"

const EVERY_MS = 5000

// The page of one worker lies below that of all.
const TOP = new URL(ROOT.pathname.replace(/workers\/[0-9]+\/$/, ""), ROOT)

const sum = (member, name, channel) => {
  const counted = channel ? member.channels.filter((one) => one.channel === channel) : member.channels
  const known = counted.map((one) => one[name]).filter((number) => number != null)
  return known.length ? known.reduce((one, other) => one + other, 0) : null
}

function nameOf(member) {
  if (member.address) return member.worker ? `${member.address}, worker ${member.worker}` : member.address
  return member.worker ? `worker ${member.worker}` : "this process"
}

// Where the page of a member is. Only addresses that the service was configured with are linked.
function linkOf(member, channel) {
  const below = member.worker ? `workers/${member.worker}/` : ""
  if (member.address) return `http://${member.address}/${below}`
  const page = channel ? `channels/${encodeURIComponent(channel)}` : ""
  return new URL(below + page, member.worker ? TOP : ROOT).href
}

function stateOf(member) {
  if (!member.is_reached) return "cannot be reached"
  return member.status === "UP" ? member.state : member.status
}

const COLUMNS = [
  ["member", (one) => `${nameOf(one)} ${stateOf(one)}`, (cell, one) => {
    const link = element("a", "", nameOf(one))
    link.href = linkOf(one)
    cell.replaceChildren(link, " ", element("span", `badge ${rowClass(one)}`, stateOf(one)))
  }],
  ["host", (one) => one.host],
  ["process", (one) => one.pid],
  ["version", (one) => one.version],
  ["up", (one) => (one.uptime_seconds == null ? "" : durationText(one.uptime_seconds))],
  ["partitions", (one) => numberText(sum(one, "partition_count"))],
  ["lag", (one) => numberText(sum(one, "lag"))],
  ["in flight", (one) => numberText(sum(one, "in_flight"))],
  ["poison", (one) => numberText(sum(one, "poison"))],
  ["reason", (one) => one.reason],
]

function rowClass(member) {
  return member.is_reached && member.status === "UP" ? "" : "down"
}

// Which worker the rest of the page shows, and what all of them have together.
function workersText(workers, channel) {
  const below = ROOT.pathname.match(/workers\/([0-9]+)\/$/)
  const shown = below ? Number(below[1]) : workers.find((one) => one.is_reached)?.worker
  const reached = workers.filter((one) => one.is_reached)
  const total = (name) => numberText(reached.reduce((all, one) => all + (sum(one, name, channel) || 0), 0))
  const whose = reached.length === workers.length ? `All ${workers.length} workers`
    : `The ${reached.length} of ${workers.length} workers that can be reached`
  const what = channel ? "This is the channel" : "The channels below are those"
  return `${what} of worker ${shown}. ${whose} together have ${total("partition_count")} partitions, `
    + `lag ${total("lag")}, ${total("in_flight")} in flight, poison ${total("poison")}. Pages:`
}

// On the first screen, and on the page of a channel, which has no table of them.
export class Members {
  constructor(channel = "") {
    this.channel = channel
    // Unknown until the service has answered.
    this.count = null
    // Above everything that is of one worker only.
    this.workers = element("p", "workers")
    this.workers.hidden = true
    this.workersText = element("span")
    this.workersLinks = element("span")
    this.workers.append(this.workersText, this.workersLinks)
    this.table = new Table("Members", COLUMNS, "members", nameOf, rowClass)
    this.node = this.table.node
    this.table.update([])
    this.look()
  }

  note(workers) {
    this.workers.hidden = workers.length < 2
    if (this.workers.hidden) return
    setText(this.workersText, workersText(workers, this.channel))
    const names = workers.map(nameOf).join("\n")
    // A keyboard must not lose its place in the links.
    if (this.workersLinks.dataset.names === names) return
    this.workersLinks.dataset.names = names
    this.workersLinks.replaceChildren(...workers.flatMap((one) => {
      const link = element("a", "", nameOf(one))
      link.href = linkOf(one, this.channel)
      return [" ", link]
    }))
  }

  async look() {
    if (!document.hidden) {
      const answer = await ask("GET", new URL("api/members", TOP))
      const members = answer.status === 200 && Array.isArray(answer.body.members) ? answer.body.members : null
      if (members) {
        this.count = members.length
        // Alone, a process is what the rest of the page shows.
        this.table.update(members.length > 1 ? members : [])
        this.note(members.filter((one) => one.worker && !one.address))
        if (members.length === 1) return
      }
    }
    setTimeout(() => this.look(), EVERY_MS)
  }
}
