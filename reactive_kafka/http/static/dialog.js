// The confirmation before an action: a dialog that says exactly what will happen, asks for the token
// where it is not known yet, and shows the answer.

import { element, setText } from "./elements.js"
import { dropToken, hasToken, keepToken } from "./service.js"

const WRONG_TOKEN = 401

// Asks for an action, and carries it out when it is confirmed.
//
// action.title: the heading
// action.confirm: the text of the button that acts
// action.fields: [{ name, label, kind, value, options, optional, shown(values) }]
// action.says(values): sentences, what will happen with these values
// action.run(values, progress): acts; returns { status, words } as ask() does
// action.done(answer): called after success
export function confirmAction(action) {
  const opener = document.activeElement
  // Its button may be another one when the dialog closes: "resume" in the place of "pause".
  const place = opener.closest("td, .actions")
  const dialog = element("dialog", "confirm")
  const form = element("form")
  const heading = element("h2", "", action.title)
  heading.id = "dialog-title"
  dialog.setAttribute("aria-labelledby", heading.id)
  const what = element("div", "what")
  what.id = "dialog-what"
  what.setAttribute("aria-live", "polite")
  dialog.setAttribute("aria-describedby", what.id)
  const fields = (action.fields || []).map(makeField)
  const token = makeField({ name: "token", label: "Token", kind: "password" })
  const bar = element("progress")
  bar.setAttribute("aria-label", "progress")
  const said = element("p", "said")
  said.setAttribute("role", "status")
  const cancel = element("button", "", "Cancel")
  cancel.type = "button"
  const confirm = element("button", "primary", action.confirm)
  const buttons = element("p", "actions")
  buttons.append(confirm, cancel)
  form.append(heading, ...fields.map((one) => one.node), what, token.node, bar, said, buttons)
  dialog.append(form)
  document.body.append(dialog)

  const values = () => Object.fromEntries(fields.map((one) => [one.name, one.read()]))

  const refresh = () => {
    const now = values()
    for (const one of fields) one.show(one.isShown(now))
    const sentences = action.says(now)
    // People who hear the page hear it again only where it has changed.
    if (what.textContent === sentences.join("")) return
    what.replaceChildren(...sentences.map((sentence) => element("p", "", sentence)))
  }

  const askForToken = () => {
    token.show(!hasToken())
    return !hasToken()
  }

  const progress = (words, share) => {
    setText(said, words)
    bar.hidden = false
    // Without a value the bar shows an unknown progress.
    if (share == null) bar.removeAttribute("value")
    else bar.value = share
    return dialog.open
  }

  const end = (answer) => {
    bar.hidden = true
    setText(said, answer.words)
    const isDone = answer.status >= 200 && answer.status < 300
    said.className = isDone ? "said done" : "said failed"
    if (isDone) {
      for (const one of fields) one.disable()
      what.hidden = true
      confirm.hidden = true
      setText(cancel, "Close")
      cancel.focus()
      if (action.done) action.done(answer)
      return
    }
    confirm.disabled = false
    if (answer.status === WRONG_TOKEN) {
      dropToken()
      askForToken()
      token.input.focus()
    }
  }

  form.oninput = refresh
  form.onsubmit = async (event) => {
    event.preventDefault()
    if (confirm.disabled || confirm.hidden) return
    if (!hasToken()) {
      keepToken(token.input.value)
      token.input.value = ""
      askForToken()
    }
    confirm.disabled = true
    said.className = "said"
    setText(said, "asking the service")
    end(await action.run(values(), progress))
  }
  cancel.onclick = () => dialog.close()
  dialog.onclose = () => {
    dialog.remove()
    if (!opener.isConnected) place?.querySelector("button")?.focus({ preventScroll: true })
  }

  bar.hidden = true
  refresh()
  const needsToken = askForToken()
  dialog.showModal()
  // What is known already needs no more than a look.
  const first = fields.find((one) => one.input.required && one.input.value === "")
  if (first) first.input.focus()
  else if (needsToken) token.input.focus()
  else cancel.focus()
}

const NUMBER = "[0-9]{1,15}"

// Makes an input with its label.
function makeField({ name, label, kind, value, options, optional, shown }) {
  const node = element("label", kind === "checkbox" ? "field check" : "field")
  const input = element(kind === "select" ? "select" : "input")
  input.name = name
  if (kind === "select") {
    for (const [chosen, text] of options) {
      const option = element("option", "", text)
      option.value = chosen
      input.append(option)
    }
  } else if (kind === "number") {
    // A field of the kind number turns with the mouse wheel.
    input.type = "text"
    input.inputMode = "numeric"
    input.pattern = NUMBER
    input.title = "a whole number"
  } else {
    input.type = kind
  }
  input.autocomplete = "off"
  if (kind === "checkbox") input.checked = value
  else if (value != null) input.value = value
  const caption = element("span", "", label)
  node.append(...(kind === "checkbox" ? [input, caption] : [caption, input]))
  const isNeeded = !optional && kind !== "checkbox"
  return {
    name, node, input,
    isShown: shown || (() => true),
    show(isShown) {
      node.hidden = !isShown
      input.required = isShown && isNeeded
      input.disabled = !isShown
    },
    disable() {
      input.disabled = true
    },
    read() {
      if (kind === "checkbox") return input.checked
      if (kind === "number") return input.value === "" ? null : Number(input.value)
      return input.value
    },
  }
}
