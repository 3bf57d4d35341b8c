// What happened to one record: a form, and what the service knows of the record.

import { button, element, setText, timeText } from "./elements.js"
import { Letters, canAct, skipIn } from "./actions.js"
import { ask } from "./service.js"

const PLACES = {
  elsewhere: "not here", starting: "not read yet", "not-written": "not written yet", "not-read": "not read yet",
  queued: "waits for a handler", "in-flight": "in flight", failing: "failing", settled: "settled, not committed yet",
  committed: "settled and committed", "no-record": "no record", unknown: "unknown",
}
const ENDINGS = {
  "dead-letter": "dead letter", delayed: "delayed retry", "put-off": "put off", ignored: "ignored", skipped: "skipped",
  "output-lost": "output lost", failed: "failed",
}
const BAD = new Set(["dead-letter", "output-lost", "failed"])
let forms = 0

export class RecordForm {
  constructor() {
    forms += 1
    this.topics = element("datalist")
    this.topics.id = `record-topics-${forms}`
    this.topic = input("topic")
    this.topic.setAttribute("list", this.topics.id)
    this.partition = number("partition")
    this.offset = number("offset")
    const form = element("form", "actions find")
    for (const one of [this.topic, this.partition, this.offset]) {
      const label = element("label")
      label.append(element("span", "", one.name), one)
      form.append(label)
    }
    form.append(element("button", "", "find"), this.topics)
    form.onsubmit = (event) => {
      event.preventDefault()
      this.find()
    }
    this.said = element("p", "said")
    this.said.setAttribute("role", "status")
    this.found = element("div")
    this.node = element("section", "record")
    this.node.append(element("h2", "", "What happened to a record"), form, this.said, this.found)
  }

  update(channels) {
    // The topics of a channel may be a pattern, and its partitions are listed on its own page only.
    const topicsOf = (one) => (one.partitions?.length ? one.partitions.map((partition) => partition.topic) : one.topics)
    const names = [...new Set(channels.flatMap(topicsOf))].sort()
    const key = names.join("\n")
    if (this.topics.dataset.names === key) return
    this.topics.dataset.names = key
    this.topics.replaceChildren(...names.map((name) => {
      const option = element("option")
      option.value = name
      return option
    }))
    if (!this.topic.value && names.length) this.topic.value = names[0]
  }

  async find() {
    setText(this.said, "asking the service")
    const query = new URLSearchParams({
      topic: this.topic.value, partition: this.partition.value, offset: this.offset.value,
    })
    const answer = await ask("GET", `api/record?${query}`)
    if (answer.status !== 200) {
      this.said.className = "said failed"
      setText(this.said, answer.words)
      this.found.replaceChildren()
      return
    }
    this.said.className = "said"
    const record = { topic: answer.body.topic, partition: answer.body.partition, offset: answer.body.offset }
    setText(this.said, `${record.topic}-${record.partition} offset ${record.offset}, at ${timeText(Date.now())}`)
    this.found.replaceChildren(...answer.body.channels.map((one) => this.card(one, record)))
  }

  card(one, record) {
    const card = element("article", "found")
    const heading = element("h3", "", `channel ${one.channel} `)
    heading.append(element("span", `badge ${one.place === "in-flight" ? "warn" : ""}`, PLACES[one.place] || one.place))
    if (one.ending) {
      heading.append(" ", element("span", `badge ${BAD.has(one.ending) ? "down" : "warn"}`, ENDINGS[one.ending] || one.ending))
    }
    card.append(heading, ...one.text.map((sentence) => element("p", "", sentence)))
    if (one.past.length) {
      const past = element("ul")
      past.append(...one.past.map((event) => element("li", "", `${timeText(event.at)} ${event.text}`)))
      card.append(past)
    }
    const bar = element("div", "actions")
    if (canAct() && one.can_skip) {
      bar.append(button("skip", `skip this record in channel ${one.channel}`, () => skipIn(one.channel, record)))
    }
    if (canAct() && one.dead_letter_topic) {
      const text = one.ending === "dead-letter" ? "show its dead letter" : "look for its dead letter"
      bar.append(button(text, text, () => {
        const letters = new Letters(one.dead_letter_topic, record)
        bar.replaceWith(letters.node)
        letters.look()
      }))
    }
    card.append(bar)
    return card
  }
}

function input(name) {
  const made = element("input")
  made.name = name
  made.required = true
  made.autocomplete = "off"
  return made
}

function number(name) {
  const made = input(name)
  made.inputMode = "numeric"
  made.pattern = "[0-9]{1,15}"
  made.title = "a whole number"
  made.size = 10
  return made
}
