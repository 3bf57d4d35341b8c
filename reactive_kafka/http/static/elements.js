// Words for numbers, elements, and tables that change only what is another one.
//
// Whatever comes from users (names of topics, errors, payloads) becomes text through textContent.
// There is no HTML in strings here, and the page's Content-Security-Policy forbids it.

export const MOST_ROWS = 50
// A table with more rows than this is drawn every other second, which halves the work of the browser.
const MANY_ROWS = 300
const MANY_ROWS_MS = 1900
const SVG = "http://www.w3.org/2000/svg"

// -- words for numbers, as in page_html.py

const thousands = new Intl.NumberFormat("en", { maximumFractionDigits: 0 })

export function numberText(number) {
  return number == null ? "-" : thousands.format(number).replaceAll(",", "\u202f")
}

export function rateText(perSecond) {
  if (perSecond == null) return "-"
  return perSecond < 10 ? perSecond.toFixed(1) : numberText(Math.round(perSecond))
}

export function durationText(seconds) {
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

export function ageText(seconds) {
  if (seconds == null) return "-"
  if (seconds < 1) return `${Number((seconds * 1000).toPrecision(3))} ms`
  return seconds < 60 ? `${seconds.toFixed(1)} s` : durationText(seconds)
}

export function timeText(at) {
  return new Date(at).toLocaleTimeString()
}

export function errorText(error) {
  return error == null ? "" : `${timeText(error.at)} ${error.type}: ${error.text}`
}

// -- elements

export function element(tag, className, text) {
  const made = document.createElement(tag)
  if (className) made.className = className
  if (text != null) made.textContent = text
  return made
}

export function drawing(tag, attributes) {
  const made = document.createElementNS(SVG, tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  return made
}

export function button(text, name, act) {
  const made = element("button", "", text)
  made.type = "button"
  // What it does, to people who hear the page: a table has the same text in each row.
  if (name !== text) made.setAttribute("aria-label", name)
  made.onclick = act
  return made
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text
}

// What the colours of a picture mean: [class, words] of each.
export function legend(colours) {
  const made = element("p", "legend")
  for (const [kind, text] of colours) made.append(element("span", `swatch ${kind}`), text)
  return made
}

export function list(node, texts) {
  const joined = texts.join("\n")
  if (node.dataset.texts === joined) return
  node.dataset.texts = joined
  node.replaceChildren(...texts.map((text) => element("li", "", text)))
  node.hidden = !texts.length
}

// The columns of words, which begin at the left. Numbers end at the right.
const WORDS = new Set(["member", "host", "letter", "record", "key", "value", "channel", "topic and group", "handler", "last error", "topic", "mode", "session", "batch",
  "progress", "ranges", "reason", "outcome", "ended", "partition", "marks", "state", "time", "kind",
  "when", "what happened"])

function classOf(label) {
  // Without a token there is nothing in this column, and it is hidden.
  if (label === "actions") return "words act"
  return WORDS.has(label) ? "words" : ""
}

// A table that keeps its rows, and changes only the cells whose content is another one.
export class Table {
  // columns: [label, text of an item, draw(cell, item) if it is more than text]
  constructor(heading, columns, className, keyOf, rowClass) {
    this.columns = columns
    this.keyOf = keyOf
    this.rowClass = rowClass || (() => "")
    this.rows = new Map()
    this.showsAll = false
    this.items = []
    // Before this time a table of many rows is not drawn again.
    this.drawAt = 0
    // The element in this table that has the focus. A keyboard must not lose its place.
    this.focused = null
    this.node = element("section")
    if (heading) this.node.append(element("h2", "", heading))
    const scroll = element("div", "scroll")
    const table = element("table", className)
    const head = element("tr")
    for (const [label] of columns) {
      const cell = element("th", classOf(label), label)
      cell.scope = "col"
      head.append(cell)
    }
    table.append(element("thead"), element("tbody"))
    table.tHead.append(head)
    this.body = table.tBodies[0]
    scroll.append(table)
    this.more = button("", "", () => {
      this.showsAll = !this.showsAll
      this.drawAt = 0
      this.update(this.items)
    })
    this.node.append(scroll, this.more)
  }

  update(items) {
    this.items = items
    if (this.showsAll && items.length > MANY_ROWS) {
      const now = performance.now()
      if (now < this.drawAt) return
      this.drawAt = now + MANY_ROWS_MS
    }
    const shown = this.showsAll ? items : items.slice(0, MOST_ROWS)
    this.node.hidden = !items.length
    this.more.hidden = items.length <= MOST_ROWS
    setText(this.more, this.showsAll ? `show ${MOST_ROWS}` : `show all ${numberText(items.length)}`)
    const active = document.activeElement
    this.focused = this.body.contains(active) ? active : null
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
    // A row that has moved has lost the focus.
    if (this.focused?.isConnected && this.focused !== document.activeElement) this.focused.focus({ preventScroll: true })
  }

  newRow() {
    const node = element("tr")
    for (const [label] of this.columns) {
      const cell = element("td", classOf(label))
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
      const hadFocus = this.focused && cell.contains(this.focused)
      if (draw) draw(cell, item)
      else cell.textContent = text
      if (hadFocus) cell.querySelector(this.focused.tagName)?.focus({ preventScroll: true })
    })
  }
}
