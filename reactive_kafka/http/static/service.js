// The service behind the page: where it is, the token, and requests.

// The page may be mounted below a path.
export const ROOT = new URL("..", import.meta.url)
const TOKEN_KEY = "reactive_kafka token"
const MOST_TEXT = 500

// The token is kept for this tab, until it is closed. It is in no address and in no cookie, so no
// page of another origin can use it.
export function hasToken() {
  return Boolean(sessionStorage.getItem(TOKEN_KEY))
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token)
}

export function dropToken() {
  sessionStorage.removeItem(TOKEN_KEY)
}

export function authorization() {
  const token = sessionStorage.getItem(TOKEN_KEY)
  return token ? { Authorization: `Bearer ${token}` } : {}
}

// Asks the service. Returns { status, body, words }: words is a sentence for people, and status 0
// says that no answer came.
export async function ask(method, path, body) {
  const headers = authorization()
  if (body) headers["Content-Type"] = "application/json"
  try {
    const answer = await fetch(new URL(path, ROOT), {
      method, headers, body: body && JSON.stringify(body), cache: "no-store", redirect: "error",
    })
    const text = await answer.text()
    let found = {}
    try {
      found = JSON.parse(text)
    } catch {
      // A proxy may answer in its own words.
    }
    const said = found.error || found.result || text.slice(0, MOST_TEXT) || `status ${answer.status}`
    // With several workers, each has its own part of a channel.
    const workers = Array.isArray(found.workers) ? found.workers : []
    const words = [said, ...workers.map((one) => `worker ${one.worker}: ${one.error || one.result}`)]
    return { status: answer.status, body: found, words: words.join("; ") }
  } catch (error) {
    return { status: 0, body: {}, words: `no answer: ${error.message}` }
  }
}

export function pathOf(...parts) {
  return parts.map(encodeURIComponent).join("/")
}
