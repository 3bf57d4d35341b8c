"""Opens pages of the built site in Chromium and hears from each what axe and its layout say.

One browser loads one page of ours, which opens the pages to look at one after the other in a frame:
in each colour scheme, at each width. The frame's width is what the page takes for the screen's.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.harness.chromium import load

PREFIX = "/reactive-kafka"
"""Where the site is on its server, as on the real one."""

WAIT_LIMIT_S = 55.0

# The page that opens the others. An image keeps it from being complete until the report is there:
# the browser ends when its page is complete.
VISITOR = """<!doctype html><title>visitor</title><body><script>
const views = %s
async function visit(view) {
  const frame = document.createElement("iframe")
  frame.style = `border:0;width:${view.width}px;height:900px`
  const loaded = new Promise(done => { frame.onload = done })
  frame.src = view.path
  document.body.append(frame)
  await loaded
  const page = frame.contentDocument
  page.body.setAttribute("data-md-color-scheme", view.scheme)
  const style = page.createElement("style")
  style.textContent = "*{transition:none!important;animation:none!important}"
  page.head.append(style)
  const script = page.createElement("script")
  const ready = new Promise(done => { script.onload = done })
  script.src = "/axe.js"
  page.head.append(script)
  await ready
  const axe = await frame.contentWindow.axe.run(page, {resultTypes: ["violations"]})
  const violations = axe.violations.map(one => ({
    rule: one.id, impact: one.impact, places: one.nodes.map(node => node.html.slice(0, 160)),
  }))
  const root = page.documentElement
  const overflow = root.scrollWidth - root.clientWidth
  frame.remove()
  return {...view, violations, overflow}
}
(async () => {
  const report = []
  try {
    for (const view of views) report.push(await visit(view))
    await fetch("/report", {method: "POST", body: JSON.stringify(report)})
  } catch (error) {
    await fetch("/report", {method: "POST", body: JSON.stringify({error: String(error)})})
  }
})()
</script><img src="/wait" alt="">"""


@dataclass(frozen=True, slots=True)
class View:
    """A page as somebody sees it.

    Attributes:
        path: On the site, such as ``"commits/"``.
        scheme: ``"default"`` is light, ``"slate"`` is dark.
        width: Of the screen, in pixels.
    """

    path: str
    scheme: str
    width: int

    def __str__(self) -> str:
        return f"{self.path or 'home'}-{self.scheme}-{self.width}"


@dataclass
class Visit:
    """What the server gives and what it gets."""

    site: Path
    axe: bytes
    views: Sequence[View]
    report: Any = None
    is_over: threading.Event = field(default_factory=threading.Event)

    def visitor(self) -> bytes:
        """The page that opens the others."""
        views = [
            {"path": f"{PREFIX}/{view.path}", "scheme": view.scheme, "width": view.width}
            for view in self.views
        ]
        return (VISITOR % json.dumps(views)).encode()


class VisitHandler(SimpleHTTPRequestHandler):
    """Serves the site, axe and the visiting page, and takes the report."""

    def __init__(self, visit: Visit, *args: Any) -> None:
        self.visit = visit
        super().__init__(*args, directory=str(visit.site))

    def translate_path(self, path: str) -> str:
        return super().translate_path(path.removeprefix(PREFIX))

    def do_GET(self) -> None:
        if self.path == "/visitor":
            self._answer(self.visit.visitor(), "text/html")
        elif self.path == "/axe.js":
            self._answer(self.visit.axe, "text/javascript")
        elif self.path == "/wait":
            self.visit.is_over.wait(WAIT_LIMIT_S)
            self._answer(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml")
        else:
            super().do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.visit.report = json.loads(body)
        self._answer(b"", "text/plain")
        self.visit.is_over.set()

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(visit: Visit) -> Iterator[str]:
    """The address of a server for a visit."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(VisitHandler, visit))
    thread = threading.Thread(target=server.serve_forever, name="site")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def looked_at(
    site: Path, axe: bytes, views: Sequence[View], profile: Path
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """What was found in each view, and what the browser said on its console."""
    visit = Visit(site, axe, views)
    with serving(visit) as address:
        loaded = load(f"{address}/visitor", profile)
    assert isinstance(visit.report, list), visit.report or "the browser has sent no report"
    return visit.report, loaded.complaints
