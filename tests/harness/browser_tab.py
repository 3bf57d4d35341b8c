"""A tab of a real Chromium that a test steers: it opens pages, runs scripts, takes pictures.

It speaks the DevTools protocol over a pipe, so that no port is open and no library is needed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.harness.chromium import find_chromium

ANSWER_S = 30.0
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    # Nothing leaves this machine.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)


KEYS = {
    "Tab": (9, ""),
    "Shift+Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    " ": (32, " "),
}
"""Key -> its code, and what it types."""


class BrowserTab:
    """One tab. ``complaints`` is what its console says: refusals, failed loads, exceptions."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.WriteTransport) -> None:
        self.complaints: list[str] = []
        self._reader = reader
        self._writer = writer
        self._session: str | None = None
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def listen(self) -> None:
        """Take answers and events until the browser ends."""
        with suppress(asyncio.IncompleteReadError):
            while True:
                message = json.loads((await self._reader.readuntil(b"\0"))[:-1])
                if "id" in message:
                    self._answers.pop(message["id"]).set_result(message)
                else:
                    self._hear(message["method"], message["params"])

    def _hear(self, method: str, params: dict[str, Any]) -> None:
        if method == "Log.entryAdded":
            entry = params["entry"]
            self.complaints.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", str(details)))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps(message).encode() + b"\0")
        result = await asyncio.wait_for(answer, ANSWER_S)
        assert "error" not in result, (method, result["error"])
        return dict(result["result"])

    async def attach(self) -> None:
        """Open a tab, and hear of its console."""
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Performance"):
            await self.call(f"{domain}.enable")

    async def see(
        self, *, width: int = 1280, height: int = 900, dark: bool = False, phone: bool = False
    ) -> None:
        """Have a screen of this size, and prefer a dark or a light page."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def open(self, url: str) -> None:
        """Open a page."""
        await self.call("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """Return the value of an expression; a promise is awaited."""
        result = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other: the name of a key, or the character that it types."""
        for key in keys:
            code, typed = KEYS.get(key, (ord(key[0].upper()), key))
            shift = 8 if key == "Shift+Tab" else 0
            about = {
                "key": key.removeprefix("Shift+"),
                "windowsVirtualKeyCode": code,
                "modifiers": shift,
            }
            await self.call("Input.dispatchKeyEvent", type="keyDown", text=typed, **about)
            await self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    async def click(self, text: str, within: str = "body") -> None:
        """Click the button with this text, or this accessible name, as soon as it is seen."""
        wanted = json.dumps(text)
        button = (
            f"[...document.querySelectorAll({json.dumps(within + ' button')})].find(one => "
            f"one.offsetParent && (one.innerText === {wanted} || one.ariaLabel === {wanted}))"
        )
        await self.until(button)
        place = await self.run(
            f"(() => {{ const one = {button}; one.scrollIntoView({{ block: 'center' }}); "
            "const box = one.getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )

    async def until(self, script: str, within_s: float = 10.0) -> None:
        """Wait until an expression is true."""
        try:
            async with asyncio.timeout(within_s):
                # The page may be replaced meanwhile, so it cannot tell by itself.
                while not await self.run(f"Boolean({script})"):  # noqa: ASYNC110
                    await asyncio.sleep(0.03)
        except TimeoutError:
            text = await self.run("document.title + '\\n' + document.body.innerText")
            raise AssertionError(f"not within {within_s} s: {script}\n{text}") from None

    async def text(self, selector: str = "body") -> str:
        """Return the text that people see in an element."""
        return str(await self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    async def busy_s(self) -> float:
        """Return the CPU time of the page's main thread so far: other processes do not count."""
        metrics = (await self.call("Performance.getMetrics"))["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "ThreadTime"))

    async def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write what the tab shows into a PNG file."""
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))


@asynccontextmanager
async def browser_tab(profile: Path) -> AsyncIterator[BrowserTab]:
    """Start a browser with one tab, and end it with the block.

    Raises:
        ChromiumMissingError: See :func:`find_chromium`.
    """
    program, libraries = await asyncio.to_thread(find_chromium)
    environ = dict(os.environ)
    if libraries:
        environ["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, libraries))
    its_input, our_output = os.pipe()
    our_input, its_output = os.pipe()
    # The browser reads from descriptor 3 and writes to 4.
    script = f'exec "$@" 3<&{its_input} 4>&{its_output}'
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        script,
        "chromium",
        str(program),
        *ARGUMENTS,
        f"--user-data-dir={profile}",
        "about:blank",
        env=environ,
        pass_fds=(its_input, its_output),
        stderr=asyncio.subprocess.DEVNULL,
    )
    os.close(its_input)
    os.close(its_output)
    loop = asyncio.get_running_loop()
    # A picture is one line of several megabytes.
    reader = asyncio.StreamReader(limit=2**26)
    incoming, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(our_input, "rb", 0)
    )
    outgoing, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(our_output, "wb", 0))
    tab = BrowserTab(reader, outgoing)
    listening = asyncio.create_task(tab.listen(), name="browser tab")
    try:
        await tab.attach()
        yield tab
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        listening.cancel()
        await asyncio.wait([listening])
        incoming.close()
        outgoing.close()
