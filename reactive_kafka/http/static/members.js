// The other processes of the service: workers of the same port, and the peers in [http] peers.

import { Table, durationText, element, numberText } from "./elements.js"
import { ROOT, ask } from "./service.js"

const EVERY_MS = 5000

// The page of one worker lies below that of all.
const TOP = new URL(ROOT.pathname.replace(/workers\/[0-9]+\/$/, ""), ROOT)

const sum = (member, name) => {
  const known = member.channels.map((one) => one[name]).filter((number) => number != null)
  return known.length ? known.reduce((one, other) => one + other, 0) : null
}

function nameOf(member) {
  if (member.address) return member.worker ? `${member.address}, worker ${member.worker}` : member.address
  return member.worker ? `worker ${member.worker}` : "this process"
}

// Where the page of a member is. Only addresses that the service was configured with are linked.
function linkOf(member) {
  const below = member.worker ? `workers/${member.worker}/` : ""
  if (!member.address) return member.worker ? new URL(below, TOP).href : ROOT.href
  return `http://${member.address}/${below}`
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

export class Members {
  constructor() {
    this.count = 1
    this.table = new Table("Members", COLUMNS, "members", nameOf, rowClass)
    this.node = this.table.node
    this.table.update([])
    this.look()
  }

  async look() {
    if (!document.hidden) {
      const answer = await ask("GET", new URL("api/members", TOP))
      const members = answer.status === 200 && Array.isArray(answer.body.members) ? answer.body.members : null
      if (members) {
        this.count = members.length
        // Alone, a process is what the rest of the page shows.
        this.table.update(members.length > 1 ? members : [])
        if (members.length === 1) return
      }
    }
    setTimeout(() => this.look(), EVERY_MS)
  }
}
