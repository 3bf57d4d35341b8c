"""A remote API to try the service with: it does what the text of a notice asks for.

``uvicorn remote:api --port 8000 --no-access-log`` serves it. A text such as ``disk full (away,
hang)`` has two moods in it, for the first two calls with that notice. Further calls are answered
well.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

BUSY_S = 2
MOODS = {
    "busy": "429 with Retry-After, for this call and all others of the next two seconds",
    "away": "503",
    "hang": "no answer",
    "lost": "the notice is delivered, but there is no answer",
    "refuse": "422, at each call",
}
HANGS_S = 60.0


@dataclass
class Call:
    """One call. Times are the loop's. Without an answer there is no status."""

    once: str
    to: str
    began: float
    ended: float | None = None
    status: int | None = None
    retry_after_s: float | None = None

    @property
    def topic(self) -> str:
        """Which topic the notice is from, by its idempotency key."""
        return self.once.partition("/")[0]


class Remote:
    """Delivers each notice once, and remembers its calls.

    Args:
        tell: Gets a line about each call, when it has ended.

    Attributes:
        calls: In the order in which they came.
        delivered: Idempotency key -> text of the notice, in the order of delivery.
        most_at_once: The most calls that were open at the same time.
    """

    def __init__(self, tell: Callable[[str], None] = lambda _: None) -> None:
        self._tell = tell
        self.calls: list[Call] = []
        self.delivered: dict[str, str] = {}
        self.most_at_once = 0
        self._at_once = 0
        self._busy_until = 0.0
        self._calls_with = Counter[str]()

    async def post(self, request: Request) -> Response:
        """Take a notice."""
        now = asyncio.get_running_loop().time
        try:
            notice = await request.json()
        except ClientDisconnect:
            # The service was killed while it sent this.
            return Response()
        once = request.headers["Idempotency-Key"]
        call = Call(once, notice["to"], now())
        self.calls.append(call)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            answer = await self._answer(once, notice["text"])
            if answer is None:
                await _until_the_caller_is_gone(request)
                return Response()
            call.status = answer.status_code
            if call.status == 429:
                call.retry_after_s = float(answer.headers["Retry-After"])
        finally:
            self._at_once -= 1
            call.ended = now()
            self._tell(f"{call.status or 'no answer'} for {call.to}")
        return answer

    async def _answer(self, once: str, text: str) -> Response | None:
        now = asyncio.get_running_loop().time()
        if now < self._busy_until:
            return _busy(self._busy_until - now)
        mood = self._mood(once, text)
        if mood == "busy":
            self._busy_until = now + BUSY_S
            return _busy(BUSY_S)
        if mood == "hang":
            return None
        # Deliveries take from 20 to 200 ms.
        await asyncio.sleep(0.02 * (1 + len(self.calls) % 10))
        if mood == "away":
            return Response(status_code=503)
        if mood == "refuse":
            return PlainTextResponse("the text is not allowed", status_code=422)
        self.delivered.setdefault(once, text)
        return None if mood == "lost" else Response(status_code=204)

    def _mood(self, once: str, text: str) -> str:
        moods = moods_of(text)
        if "refuse" in moods:
            return "refuse"
        number = self._calls_with[once]
        self._calls_with[once] += 1
        return moods[number] if number < len(moods) else ""


def moods_of(text: str) -> list[str]:
    """What a text asks for, call by call."""
    _, bracket, moods = text.rstrip(")").rpartition("(")
    return moods.split(", ") if bracket else []


def _busy(seconds: float) -> Response:
    return Response(status_code=429, headers={"Retry-After": str(ceil(seconds))})


async def _until_the_caller_is_gone(request: Request) -> None:
    async with asyncio.timeout(HANGS_S):
        while (await request.receive())["type"] != "http.disconnect":
            pass


def application(remote: Remote) -> Starlette:
    """The API as a web application."""
    return Starlette(routes=[Route("/notices", remote.post, methods=["POST"])])


api = application(Remote(tell=print))
