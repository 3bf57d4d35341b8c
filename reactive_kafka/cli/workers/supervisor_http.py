"""The HTTP endpoints of a supervisor: each request is answered from the answers of the workers.

The workers check ``Host``, origin and token as they would on a port of their own. A refusal of a
worker is the answer of the supervisor.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol
from urllib.parse import unquote

from reactive_kafka.cli.workers.action_summary import (
    WorkerReply,
    is_for_one_worker,
    summary_of,
)
from reactive_kafka.cli.workers.metric_sums import CONTENT_TYPE, Families, MetricSums, parsed
from reactive_kafka.cli.workers.record_answer import merged_record
from reactive_kafka.cli.workers.worker_health import WorkerProbe, merged_probe
from reactive_kafka.cli.workers.worker_process import NoAnswerError, WorkerAnswer, WorkerProcess
from reactive_kafka.http.action_requests import CLIENT_HEADER
from reactive_kafka.http.member_json import Json, not_among, unreached
from reactive_kafka.http.members_html import PageOfMember, with_members
from reactive_kafka.observe.catalogue import OF_A_SUPERVISOR, WORKER_UP

PROBE_S = 2.0
"""How long a worker may take to answer a probe."""
ANSWER_S = 20.0
"""How long a worker may take for anything else but a stream."""
PAGE_S = 3.0
"""How long a worker may take for a page, or to begin a stream. Then the next one is asked."""
SCRAPE_TIMEOUT = "x-prometheus-scrape-timeout-seconds"
"""In this header Prometheus says when it gives up."""
SCRAPE_SHARE = 0.7
"""The share of that time which workers have. The rest is for adding up what they have answered."""
RECORD = "/api/record"
STREAM = "/api/stream"
MEMBERS = "/api/members"
ONLY_SELF = "only=self"
"""The query that asks a worker for what it knows without its peers."""
MEMBERS_S = 5.0
"""How long a worker may take to say how it and its peers are. A peer has 2 seconds."""
BODY_BYTES = 1024 * 1024
PROBES = frozenset({"/health", "/health/live", "/health/ready", "/health/started"})
TO_ALL = ("/api/channels/", "/api/log-level")
"""Actions on channels go to every worker, because each has its own part of a channel."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Any]
Send = Callable[[Message], Any]


class WorkerSlot(Protocol):
    """The place of one worker, whose processes come and go."""

    @property
    def number(self) -> int: ...
    @property
    def process(self) -> WorkerProcess | None: ...
    @property
    def keeps_failing(self) -> bool: ...
    @property
    def restarts(self) -> int: ...
    @property
    def last_end(self) -> str: ...


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request of a client."""

    method: str
    path: str
    # The path with its query.
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class WorkerPage:
    """A page that a client asks for: the first screen, or that of a channel."""

    # None: that of any worker.
    worker: str | None
    # The path at the worker.
    path: str
    # Empty: it is the first screen.
    channel: str

    @property
    def top(self) -> str:
        """Where the pages of all workers begin, as links of this page name it."""
        steps = self.path.count("/") - 1 + (2 if self.worker else 0)
        return "/".join([".."] * steps) or "."


class SupervisorHttp:
    """An ASGI application without a framework: it forwards, and merges what comes back."""

    def __init__(self, slots: Sequence[WorkerSlot]) -> None:
        self._slots = slots
        self._sums = MetricSums()
        # A process must not be asked while it is being counted as ended.
        self._scraping = asyncio.Lock()

    async def ended(self, process: WorkerProcess) -> None:
        """Keep what a process that has ended had counted."""
        async with self._scraping:
            self._sums.ended(process.pid)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = await _request(scope, receive)
        if request is None:
            return
        if len(request.body) > BODY_BYTES:
            await _send(send, _text(413, f"the body has more than {BODY_BYTES} bytes"))
        elif request.method in ("GET", "HEAD") and request.path in PROBES:
            await _send(send, await self._probe(request))
        elif request.method in ("GET", "HEAD") and request.path == "/metrics":
            await _send(send, await self._metrics(request))
        elif request.method == "GET" and request.path == MEMBERS:
            await _send(send, await self._members(request))
        elif request.method == "GET" and request.path == RECORD:
            await _send(send, await self._record(request))
        elif request.method == "POST" and request.path.startswith(TO_ALL):
            await _send(send, await self._to_all(request))
        elif request.method in ("GET", "HEAD") and (at := self._without_slash(request)):
            await _send(send, _moved(at))
        elif request.method in ("GET", "HEAD") and (page := page_asked_for(request)) is not None:
            await _send(send, await self._page(request, page))
        else:
            await _until_gone(receive, self._forward(request, send))

    async def _probe(self, request: HttpRequest) -> WorkerAnswer:
        # The answer to a HEAD has no body, and the body is needed here.
        full = HttpRequest("GET", request.path, request.target, request.headers, b"")
        asked = [self._ask(slot, slot.process, full, PROBE_S) for slot in self._slots]
        found: list[WorkerProbe] = []
        for slot, answer in zip(self._slots, await asyncio.gather(*asked), strict=True):
            if isinstance(answer, WorkerAnswer) and answer.status not in (200, 503):
                return answer
            found.append(_worker_probe(slot, answer))
        probe = merged_probe(request.path, found)
        return _json(probe, 200 if probe["status"] == "UP" else 503)

    async def _metrics(self, request: HttpRequest) -> WorkerAnswer:
        # The sums are made from Prometheus text.
        headers = tuple(pair for pair in request.headers if pair[0] != "accept")
        plain = HttpRequest("GET", "/metrics", "/metrics", headers, b"")
        async with self._scraping:
            processes = [(slot, slot.process) for slot in self._slots]
            within_s = _scrape_s(request)
            asked = [self._ask(slot, process, plain, within_s) for slot, process in processes]
            found: dict[int, tuple[int, Families]] = {}
            for (slot, process), answer in zip(
                processes, await asyncio.gather(*asked), strict=True
            ):
                if isinstance(answer, str) or process is None:
                    continue
                if answer.status != 200:
                    return answer
                # 10,000 partitions have 130,000 lines: probes must not wait for these.
                families = await asyncio.to_thread(parsed, answer.body.decode())
                found[process.pid] = (slot.number, families)
            page = await asyncio.to_thread(self._sums.page, found)
        body = (page + self._own_metrics(found)).encode()
        return WorkerAnswer(200, (("content-type", CONTENT_TYPE), _NO_STORE), body)

    def _own_metrics(self, found: Collection[int]) -> str:
        lines: list[str] = []
        for metric in OF_A_SUPERVISOR:
            lines.append(f"# HELP {metric.name} {metric.meaning}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            for slot in self._slots:
                value = slot.restarts
                if metric is WORKER_UP:
                    value = int(slot.process is not None and slot.process.pid in found)
                lines.append(f'{metric.name}{{worker="{slot.number}"}} {value}')
        return "\n".join([*lines, ""])

    async def _to_all(self, request: HttpRequest) -> WorkerAnswer:
        """Send an action to all workers, and make one answer of theirs."""
        asked = [self._ask(slot, slot.process, request, ANSWER_S) for slot in self._slots]
        answers = [
            answer if isinstance(answer, WorkerAnswer) else _unavailable(slot, answer)
            for slot, answer in zip(self._slots, await asyncio.gather(*asked), strict=True)
        ]
        replies = [
            WorkerReply(slot.number, answer.status, answer.body.decode(errors="replace"))
            for slot, answer in zip(self._slots, answers, strict=True)
        ]
        one_is_enough = is_for_one_worker(request.path, request.body)
        summary = summary_of(replies, one_is_enough=one_is_enough)
        if summary is None:
            return answers[0]
        status, body = summary
        return _json(body, status)

    async def _record(self, request: HttpRequest) -> WorkerAnswer:
        """Ask all workers where a record is: one of them has its partition."""
        asked = [self._ask(slot, slot.process, request, ANSWER_S) for slot in self._slots]
        answers = list(zip(self._slots, await asyncio.gather(*asked), strict=True))
        found = [
            (slot.number, json.loads(answer.body))
            for slot, answer in answers
            if isinstance(answer, WorkerAnswer) and answer.status == 200
        ]
        if found:
            return _json(merged_record(found), 200)
        slot, answer = answers[0]
        return answer if isinstance(answer, WorkerAnswer) else _unavailable(slot, answer)

    async def _members(self, request: HttpRequest) -> WorkerAnswer:
        found = await self._member_list(request, MEMBERS_S)
        if isinstance(found, WorkerAnswer):
            return found
        return _json({"members": found}, 200)

    async def _member_list(
        self, request: HttpRequest, within_s: float
    ) -> Sequence[Json] | WorkerAnswer:
        """Return all workers and what the first one that runs says of its peers; or a refusal."""
        first = self._running()[0]
        asked_all = replace(request, method="GET", target=MEMBERS)
        only_self = replace(asked_all, target=f"{MEMBERS}?{ONLY_SELF}")
        asked = [
            self._ask(slot, slot.process, asked_all if slot is first else only_self, within_s)
            for slot in self._slots
        ]
        found: list[Json] = []
        others: list[Json] = []
        for slot, answer in zip(self._slots, await asyncio.gather(*asked), strict=True):
            if isinstance(answer, WorkerAnswer) and answer.status in (401, 403, 421):
                return answer
            listed = _listed(slot, answer)
            found.append({**listed[0], "worker": slot.number})
            # Peers have an address; the worker itself has none.
            others += listed[1:]
        return [*found, *not_among(found, others)]

    async def _page(self, request: HttpRequest, page: WorkerPage) -> WorkerAnswer:
        """Return the page of one worker, with what it says of all of them."""
        members = await self._member_list(request, PAGE_S)
        slots = self._slots_of(page.worker)
        if isinstance(members, WorkerAnswer):
            # The page itself says it better: it asks for the token.
            members = []
        elif page.worker is None:
            reached = {one["worker"] for one in members if one["is_reached"] and not one["address"]}
            slots = [slot for slot in slots if slot.number in reached] or slots
        if not slots:
            return self._no_such_worker()
        query = request.target.partition("?")[2]
        target = f"{page.path}?{query}&{ONLY_SELF}" if query else f"{page.path}?{ONLY_SELF}"
        # The answer to a HEAD has no body, and its length is that of the body.
        asked = replace(request, method="GET", target=target)
        slot = slots[0]
        answer = await self._ask(slot, slot.process, asked, PAGE_S)
        if isinstance(answer, str):
            return _unavailable(slot, answer)
        if answer.status != 200:
            return answer
        place = PageOfMember(top=page.top, worker=slot.number, channel=page.channel)
        return replace(answer, body=with_members(answer.body.decode(), members, place).encode())

    async def _ask(
        self,
        slot: WorkerSlot,
        process: WorkerProcess | None,
        request: HttpRequest,
        within_s: float,
    ) -> WorkerAnswer | str:
        """Return the answer of a worker's process, or the reason for its absence."""
        if process is None:
            return slot.last_end
        try:
            return await process.answer(
                request.method, request.target, request.headers, request.body, within_s=within_s
            )
        except NoAnswerError as error:
            return str(error)

    async def _forward(self, request: HttpRequest, send: Send) -> None:
        """Pass a request to one worker: the one in ``/workers/NUMBER/``, else the first.

        A question that the first one does not answer goes to the next one.
        """
        slots, target = self._chosen(request)
        if not slots:
            await _send(send, self._no_such_worker())
            return
        if request.method not in ("GET", "HEAD"):
            slots = slots[:1]
        reasons: list[WorkerAnswer] = []
        for slot in slots:
            why = await self._pass_to(slot, replace(request, target=target), send)
            if why is None:
                return
            reasons.append(_unavailable(slot, why))
        await _send(send, reasons[0])

    async def _pass_to(self, slot: WorkerSlot, request: HttpRequest, send: Send) -> str | None:
        """Pass a request to a worker. Returns why it has not answered, None if it has."""
        if slot.process is None:
            return slot.last_end
        within_s = PAGE_S if request.path.endswith(STREAM) else ANSWER_S
        async with AsyncExitStack() as answering:
            try:
                async with asyncio.timeout(within_s):
                    asked = slot.process.asked(
                        request.method, request.target, request.headers, request.body
                    )
                    stream = await answering.enter_async_context(asked)
            except TimeoutError:
                return f"it has not answered within {within_s:g} s"
            except NoAnswerError as error:
                return str(error)
            await send(_start(stream.status, stream.headers))
            with suppress(NoAnswerError):
                async for chunk in stream.chunks():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return None

    def _chosen(self, request: HttpRequest) -> tuple[Sequence[WorkerSlot], str]:
        """Return the workers that may answer a request, and the path there with its query."""
        if not request.path.startswith("/workers/"):
            return self._running(), request.target
        number, _, rest = request.target.removeprefix("/workers/").partition("/")
        return self._slots_of(number), f"/{rest}"

    def _without_slash(self, request: HttpRequest) -> str | None:
        """Return where the page of ``/workers/2`` is, from there; None: the path is another one.

        The links of the page are relative, so it has to be read at ``/workers/2/``.
        """
        path, mark, query = request.target.partition("?")
        number = path.removeprefix("/workers/")
        if path != f"/workers/{number}" or not self._slots_of(number):
            return None
        return f"{number}/{mark}{query}"

    def _slots_of(self, number: str | None) -> Sequence[WorkerSlot]:
        """Return the worker with this number, or those that run."""
        if number is None:
            return self._running()
        return [slot for slot in self._slots if str(slot.number) == number]

    def _running(self) -> Sequence[WorkerSlot]:
        """Return the workers that run, or all if none does."""
        return [slot for slot in self._slots if slot.process is not None] or self._slots

    def _no_such_worker(self) -> WorkerAnswer:
        return _text(404, f"there is no such worker; there are 1 to {len(self._slots)}")


def page_asked_for(request: HttpRequest) -> WorkerPage | None:
    """Return the page that a request is for, None if it is for something else."""
    path = request.target.partition("?")[0]
    worker = None
    if path.startswith("/workers/"):
        worker, _, rest = path.removeprefix("/workers/").partition("/")
        path = f"/{rest}"
    if path == "/":
        return WorkerPage(worker, path, "")
    if path.startswith("/channels/"):
        return WorkerPage(worker, path, unquote(path.removeprefix("/channels/")))
    return None


def _scrape_s(request: HttpRequest) -> float:
    """Return how long workers may take to answer a scrape.

    One that hangs is left out before Prometheus gives up, which would lose the metrics of all.
    """
    try:
        timeout_s = float(dict(request.headers).get(SCRAPE_TIMEOUT, ""))
    except ValueError:
        return ANSWER_S
    return min(ANSWER_S, SCRAPE_SHARE * timeout_s) if timeout_s > 0 else ANSWER_S


def _worker_probe(slot: WorkerSlot, answer: WorkerAnswer | str) -> WorkerProbe:
    """Return what a probe says of a worker: its answer, or why there is none."""
    if isinstance(answer, WorkerAnswer):
        return WorkerProbe(
            number=slot.number, answer=json.loads(answer.body), state="running", reason=""
        )
    if slot.process is None:
        state = "restarting"
    elif answer.startswith("it has not answered"):
        state = "unreachable"
    else:
        state = "starting"
    return WorkerProbe(
        number=slot.number,
        answer=None,
        state=state,
        reason=answer,
        keeps_failing=slot.keeps_failing,
    )


def _listed(slot: WorkerSlot, answer: WorkerAnswer | str) -> Sequence[Json]:
    """Return the members that a worker has answered with: itself first."""
    if isinstance(answer, str):
        return [unreached(answer)]
    if answer.status != 200:
        return [unreached(f"it answered {answer.status}")]
    # The answer of our own worker, which has checked those of its peers.
    listed: list[Json] = json.loads(answer.body)["members"]
    return listed


async def _until_gone(receive: Receive, answering: Coroutine[Any, Any, None]) -> None:
    """Answer until the client has disconnected. A stream would go on for ever otherwise."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    answer = asyncio.create_task(answering)
    leaving = asyncio.create_task(gone())
    try:
        await asyncio.wait([answer, leaving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        if not answer.done():
            answer.cancel()
        await asyncio.wait([answer, leaving])
    if not answer.cancelled():
        # This raises what the answer has failed with.
        answer.result()


async def _request(scope: Mapping[str, Any], receive: Receive) -> HttpRequest | None:
    """Read a request. None: its client has disconnected, so its body may lack arguments."""
    body = b""
    while len(body) <= BODY_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    query = scope["query_string"].decode("latin-1")
    path = scope["raw_path"].decode("latin-1")
    headers = [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name.decode("latin-1").lower() != CLIENT_HEADER
    ]
    if scope.get("client"):
        # The worker sees no address: the connection comes from here.
        headers.append((CLIENT_HEADER, str(scope["client"][0])))
    target = f"{path}?{query}" if query else path
    return HttpRequest(scope["method"], scope["path"], target, tuple(headers), body)


_NO_STORE = ("cache-control", "no-store")


def _start(status: int, headers: Sequence[tuple[str, str]]) -> Message:
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {"type": "http.response.start", "status": status, "headers": encoded}


async def _send(send: Send, answer: WorkerAnswer) -> None:
    headers = [pair for pair in answer.headers if pair[0] != "content-length"]
    headers.append(("content-length", str(len(answer.body))))
    await send(_start(answer.status, headers))
    await send({"type": "http.response.body", "body": answer.body})


def _json(content: Mapping[str, Any], status: int) -> WorkerAnswer:
    body = json.dumps(content, allow_nan=False).encode()
    return WorkerAnswer(status, (("content-type", "application/json"), _NO_STORE), body)


def _text(status: int, text: str) -> WorkerAnswer:
    headers = (("content-type", "text/plain; charset=utf-8"), _NO_STORE)
    return WorkerAnswer(status, headers, f"{text}\n".encode())


def _moved(to: str) -> WorkerAnswer:
    """Return a redirect.

    Args:
        to: A relative address. ``Host`` may be any, and a proxy may have removed part of the path.
    """
    return WorkerAnswer(308, (("location", to), _NO_STORE), b"")


def _unavailable(slot: WorkerSlot, why: str) -> WorkerAnswer:
    return _text(503, f"worker {slot.number}: {why}")
