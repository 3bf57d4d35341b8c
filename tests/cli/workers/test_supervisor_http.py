"""What a supervisor forwards, and when it stops."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

from reactive_kafka.cli.workers.supervisor_http import BODY_BYTES, SupervisorHttp
from reactive_kafka.cli.workers.worker_process import NoAnswerError, WorkerAnswer
from tests.http.applike import FactsApp, asgi_of


class EndlessStream:
    """A response whose body never ends."""

    status = 200
    headers = (("content-type", "text/event-stream"),)

    async def chunks(self) -> AsyncIterator[bytes]:
        yield b"data: first\n\n"
        await asyncio.Event().wait()


class StreamingWorker:
    """The process of a worker, as far as the supervisor asks it."""

    pid = 7

    def __init__(self, number: int) -> None:
        self.number = number
        self.open = 0
        self.asked_for: list[str] = []

    @asynccontextmanager
    async def asked(self, method: str, target: str, *_: object) -> AsyncIterator[EndlessStream]:
        self.asked_for.append(f"{method} {target}")
        self.open += 1
        try:
            yield EndlessStream()
        finally:
            self.open -= 1

    async def answer(self, method: str, target: str, *_: object, within_s: float) -> WorkerAnswer:
        self.asked_for.append(f"{method} {target}")
        return WorkerAnswer(200 + self.number, (), b"done")


@dataclass
class RunningSlot:
    """The place of a worker that runs."""

    number: int
    process: Any
    keeps_failing: bool = False
    restarts: int = 0
    last_end: str = ""


def scope_of(method: str, path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }


class HttpClient:
    """A client of the supervisor: one request, and then it may leave."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.received.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        self.sent: list[Any] = []
        self.has_data = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        return await self.received.get()

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if message.get("body"):
            self.has_data.set()

    def leave(self) -> None:
        self.received.put_nowait({"type": "http.disconnect"})


async def test_a_stream_ends_at_the_worker_when_the_client_leaves() -> None:
    worker = StreamingWorker(1)
    http = SupervisorHttp([RunningSlot(1, worker)])
    client = HttpClient()
    serving = asyncio.create_task(http(scope_of("GET", "/api/stream"), client.receive, client.send))
    async with asyncio.timeout(5):
        await client.has_data.wait()
        assert worker.open == 1
        client.leave()
        await serving
    assert worker.open == 0


@pytest.mark.parametrize(
    ("path", "first", "second"),
    [
        ("/workers/2/api/stream", [], ["GET /api/stream"]),
        ("/workers/1/api/channels", ["GET /api/channels"], []),
        ("/api/spark", ["GET /api/spark"], []),
    ],
)
async def test_a_request_goes_to_the_worker_in_its_path_or_to_the_first(
    path: str, first: list[str], second: list[str]
) -> None:
    workers = [StreamingWorker(1), StreamingWorker(2)]
    http = SupervisorHttp([RunningSlot(worker.number, worker) for worker in workers])
    client = HttpClient()
    serving = asyncio.create_task(http(scope_of("GET", path), client.receive, client.send))
    async with asyncio.timeout(5):
        await client.has_data.wait()
        client.leave()
        await serving
    assert [worker.asked_for for worker in workers] == [first, second]


class ActingWorker(StreamingWorker):
    """A worker that answers actions."""

    def __init__(self, number: int, status: int, body: str) -> None:
        super().__init__(number)
        self.status = status
        self.body = body
        self.headers: dict[str, str] = {}
        self.content = b""

    async def answer(
        self, method: str, target: str, headers: Any = (), body: bytes = b"", *, within_s: float
    ) -> WorkerAnswer:
        self.asked_for.append(f"{method} {target}")
        self.headers = dict(headers)
        self.content = body
        return WorkerAnswer(self.status, (("www-authenticate", "Bearer"),), self.body.encode())


async def acted(
    *workers: ActingWorker | None, path: str = "/api/channels/orders/skip", body: bytes = b"{}"
) -> tuple[int, Any]:
    """The answer of a supervisor of these workers; None: a worker that does not run."""
    slots = [RunningSlot(number, worker) for number, worker in enumerate(workers, 1)]
    for slot in slots:
        slot.last_end = "it has ended"
    client = HttpClient()
    client.received.get_nowait()
    client.received.put_nowait({"type": "http.request", "body": body, "more_body": False})
    scope = scope_of("POST", path) | {
        "client": ("10.9.8.7", 1),
        "headers": [(b"x-reactive-kafka-client", b"forged")],
    }
    await SupervisorHttp(slots)(scope, client.receive, client.send)
    content = b"".join(message.get("body", b"") for message in client.sent).decode()
    return client.sent[0]["status"], json.loads(content) if content[0] == "{" else content


NOT_MINE = '{"error": "channel does not have orders-1", "code": "not-assigned"}'


@pytest.mark.parametrize("path", ["/api/channels/orders/skip", "/api/log-level"])
async def test_an_action_goes_to_all_and_the_owner_of_the_partition_is_enough(path: str) -> None:
    mine = ActingWorker(2, 200, '{"result": "skipped", "state": "running"}')
    others = ActingWorker(1, 409, NOT_MINE)
    status, body = await acted(others, mine, path=path)
    assert (status, body["result"]) == (200, "done by 1 of 2 workers")
    assert body["workers"] == [
        {
            "worker": 1,
            "status": 409,
            "error": "channel does not have orders-1",
            "code": "not-assigned",
        },
        {"worker": 2, "status": 200, "result": "skipped", "state": "running"},
    ]
    assert mine.headers["x-reactive-kafka-client"] == "10.9.8.7", "not what the client says"


async def test_nobody_has_the_partition() -> None:
    status, body = await acted(ActingWorker(1, 409, NOT_MINE), ActingWorker(2, 409, NOT_MINE))
    assert (status, body["code"]) == (409, "not-assigned")
    assert body["error"] == "channel does not have orders-1"


async def test_a_worker_that_cannot_act_is_the_answer_with_how_many_could() -> None:
    done = ActingWorker(1, 200, '{"result": "paused"}')
    status, body = await acted(done, None, path="/api/channels/orders/pause")
    assert status == 503
    assert body["error"] == "worker 2: it has ended (done by 1 of 2 workers)"
    slow = ActingWorker(2, 202, '{"result": "under way"}')
    assert (await acted(done, slow))[0] == 202
    wrong = [ActingWorker(number, 400, '{"error": "wrong"}') for number in (1, 2)]
    status, body = await acted(*wrong)
    assert (status, body["error"]) == (400, "wrong")


ONE = {"topic": "orders", "partition": 1, "offset": 7}


@pytest.mark.parametrize(
    ("action", "arguments", "status"),
    [
        ("seek", ONE, 200),
        ("skip", ONE, 200),
        # The worker that is away may have partitions, or get the one that is to be paused.
        ("seek", {**ONE, "partition": "all"}, 503),
        ("seek", {"topic": "orders", "all": True, "offset": 7}, 503),
        ("pause", {"topic": "orders", "partition": 1}, 503),
    ],
)
async def test_if_the_owner_has_acted_nobody_waits_for_a_worker_that_restarts(
    action: str, arguments: dict[str, Any], status: int
) -> None:
    path, content = f"/api/channels/orders/{action}", json.dumps(arguments).encode()
    owner = ActingWorker(1, 200, '{"result": "done"}')
    answer = await acted(owner, None, path=path, body=content)
    assert answer[0] == status
    assert answer[1]["workers"][1] == {
        "worker": 2,
        "status": 503,
        "error": "worker 2: it has ended",
    }
    other = ActingWorker(1, 409, NOT_MINE)
    assert (await acted(other, None, path=path, body=content))[0] == 503, "it may be the owner"


async def test_what_the_guard_of_the_workers_says_is_passed_on() -> None:
    text = '{"error": "this needs the token"}'
    refused = [ActingWorker(number, 401, text) for number in (1, 2)]
    assert await acted(*refused) == (401, json.loads(text))


async def test_a_huge_body_reaches_no_worker() -> None:
    worker = ActingWorker(1, 200, "{}")
    status, _ = await acted(worker, body=b"x" * (BODY_BYTES + 1))
    assert (status, worker.asked_for) == (413, [])


async def test_an_action_whose_client_leaves_before_its_whole_body_reaches_no_worker() -> None:
    """Without its body a pause of one partition would be one of the whole channel."""
    worker = ActingWorker(1, 200, "{}")
    client = HttpClient()
    client.received.get_nowait()
    client.received.put_nowait({"type": "http.request", "body": b'{"top', "more_body": True})
    client.leave()
    http = SupervisorHttp([RunningSlot(1, worker)])
    await http(scope_of("POST", "/api/channels/orders/pause"), client.receive, client.send)
    assert worker.asked_for == []
    assert client.sent == []


async def told(path: str, *workers: ActingWorker | None) -> tuple[int, Any]:
    """The answer of a supervisor of these workers to a GET."""
    slots = [RunningSlot(number, worker) for number, worker in enumerate(workers, 1)]
    for slot in slots:
        slot.last_end = "it has ended"
    client = HttpClient()
    await SupervisorHttp(slots)(scope_of("GET", path), client.receive, client.send)
    content = b"".join(message.get("body", b"") for message in client.sent).decode()
    return client.sent[0]["status"], json.loads(content) if content[0] == "{" else content


class HangingWorker(StreamingWorker):
    """A worker whose event loop is blocked."""

    pid = 8

    async def answer(self, method: str, target: str, *_: object, within_s: float) -> WorkerAnswer:
        await asyncio.sleep(within_s)
        raise NoAnswerError(f"it has not answered within {within_s:g} s")


@pytest.mark.virtual_time
@pytest.mark.parametrize(("timeout", "took_s"), [(b"10", 7), (b"60", 20), (b"", 20), (b"nan", 20)])
async def test_a_scrape_has_the_counts_of_all_others_before_prometheus_gives_up(
    timeout: bytes, took_s: float
) -> None:
    counting = ActingWorker(1, 200, "# TYPE records counter\nrecords_total 3\n")
    http = SupervisorHttp([RunningSlot(1, counting), RunningSlot(2, HangingWorker(2))])
    client = HttpClient()
    scope = scope_of("GET", "/metrics")
    scope["headers"] = [(b"x-prometheus-scrape-timeout-seconds", timeout)]
    began = asyncio.get_running_loop().time()
    await http(scope, client.receive, client.send)
    assert asyncio.get_running_loop().time() - began == pytest.approx(took_s)
    text = client.sent[1]["body"].decode()
    assert "records_total 3.0\n" in text
    assert 'reactive_kafka_worker_up{worker="2"} 0\n' in text


def members(*pids: int, address: str | None = None) -> str:
    listed = [{"pid": pid, "host": "a", "address": address, "is_reached": True} for pid in pids]
    return json.dumps({"members": listed})


async def test_the_members_are_all_workers_and_the_peers_of_one() -> None:
    peer = {"pid": 9, "host": "b", "address": "b:1", "is_reached": True}
    own = {"pid": 1, "host": "a", "address": None, "is_reached": True}
    # The service is among its own peers.
    again = {"pid": 2, "host": "a", "address": "a:1", "is_reached": True}
    first = ActingWorker(1, 200, json.dumps({"members": [own, again, peer]}))
    second = ActingWorker(2, 200, members(2))
    status, body = await told("/api/members", first, second, None)
    assert status == 200
    found = [(one.get("pid"), one["worker"], one["is_reached"]) for one in body["members"][:3]]
    assert found == [(1, 1, True), (2, 2, True), (None, 3, False)]
    assert body["members"][2]["reason"] == "it has ended"
    assert body["members"][3:] == [peer]
    assert second.asked_for == ["GET /api/members?only=self"], "peers are asked once"
    refused = ActingWorker(1, 401, '{"error": "this needs the token"}')
    assert (await told("/api/members", refused, second))[0] == 401


def record(place: str, *past: str) -> str:
    channel = {"channel": "orders", "place": place, "past": list(past)}
    return json.dumps({"topic": "orders", "offset": 7, "channels": [channel]})


async def test_a_record_is_where_the_worker_with_its_partition_says() -> None:
    elsewhere = ActingWorker(1, 200, record("elsewhere"))
    knows = ActingWorker(2, 200, record("in-flight"))
    status, body = await told("/api/record", elsewhere, knows)
    assert (status, body["offset"]) == (200, 7)
    (channel,) = body["channels"]
    assert (channel["place"], channel["worker"]) == ("in-flight", 2)
    remembers = ActingWorker(2, 200, record("elsewhere", "it failed"))
    (channel,) = (await told("/api/record", elsewhere, remembers, None))[1]["channels"]
    assert channel["past"] == ["it failed"]
    wrong = ActingWorker(1, 400, '{"error": "offset is missing"}')
    assert await told("/api/record", wrong, wrong) == (400, {"error": "offset is missing"})
    assert (await told("/api/record", None))[0] == 503


class PageWorker(StreamingWorker):
    """A worker that answers with the real pages of an application."""

    def __init__(self, number: int, token: str | None = None) -> None:
        super().__init__(number)
        self.transport = httpx.ASGITransport(app=asgi_of(FactsApp(pid=number), token))

    async def answer(
        self, method: str, target: str, headers: Any = (), *_: object, within_s: float
    ) -> WorkerAnswer:
        self.asked_for.append(f"{method} {target}")
        async with httpx.AsyncClient(transport=self.transport, base_url="http://app") as client:
            answer = await client.request(method, target, headers=list(headers))
        return WorkerAnswer(answer.status_code, tuple(answer.headers.items()), answer.content)


class LoadingWorker(StreamingWorker):
    """A worker that has just been started again."""

    @asynccontextmanager
    async def asked(self, method: str, target: str, *_: object) -> AsyncIterator[EndlessStream]:
        self.asked_for.append(f"{method} {target}")
        raise NoAnswerError("it is loading the application")
        yield

    async def answer(self, *_: object, within_s: float) -> WorkerAnswer:
        raise NoAnswerError("it is loading the application")


async def shown(
    path: str, *workers: StreamingWorker | None, method: str = "GET"
) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of a page; None: a worker that does not run."""
    slots = [RunningSlot(number, worker) for number, worker in enumerate(workers, 1)]
    for slot in slots:
        slot.last_end = "it has ended"
    client = HttpClient()
    scope = scope_of(method, path) | {"headers": [(b"accept", b"text/html")]}
    await SupervisorHttp(slots)(scope, client.receive, client.send)
    body = b"".join(message.get("body", b"") for message in client.sent).decode()
    headers = {name.decode(): value.decode() for name, value in client.sent[0]["headers"]}
    return client.sent[0]["status"], headers, body


def words(html: str) -> str:
    """What people read of a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


async def test_without_scripts_the_first_screen_lists_all_workers_and_whose_channels_it_shows() -> (
    None
):
    status, _, html = await shown("/", PageWorker(1), PageWorker(2), None)
    assert status == 200
    note, _, rest = words(html).partition("Incoming channels")
    assert (
        "The channels below are those of worker 1. The 2 of 3 workers that can be reached together "
        "have 2 partitions, lag 10, 4 in flight, poison 0. Pages: worker 1 worker 2 worker 3"
    ) in note
    assert "3 members" in note
    _, _, listed = rest.partition("Members")
    assert "worker 1 running host-7 1 1.2.3" in listed
    assert "worker 2 running host-7 2 1.2.3" in listed
    assert re.search(r"worker 3 cannot be reached.*it has ended", listed)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/workers/2/",
        "/channels/orders",
        "/workers/2/channels/orders?all=1",
    ],
)
async def test_links_to_other_workers_lead_to_them_from_each_page(path: str) -> None:
    _, _, html = await shown(path, PageWorker(1), PageWorker(2))
    (note,) = re.findall(r'<p class="workers">.*?</p>', html)
    here = f"http://shop:9000{path}"
    found = [urljoin(here, link) for link in re.findall(r'href="([^"]*)"', note)]
    below = "channels/orders" if "orders" in path else ""
    assert found == [f"http://shop:9000/workers/{number}/{below}" for number in (1, 2)]
    assert f"of worker {2 if 'workers/2' in path else 1}. All 2 workers" in note


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("query", ["", "?all=1"])
async def test_the_page_of_a_worker_without_its_last_slash_is_redirected_to_it(
    method: str, query: str
) -> None:
    path = f"/workers/2{query}"
    status, headers, body = await shown(path, PageWorker(1), PageWorker(2), method=method)
    assert (status, body) == (308, "")
    # Below a proxy's path, too.
    assert urljoin(f"http://shop/kafka{path}", headers["location"]) == (
        f"http://shop/kafka/workers/2/{query}"
    )
    assert (await shown("/workers/3", PageWorker(1), PageWorker(2)))[0] == 404
    assert (await shown("/workers//evil.com", PageWorker(1), PageWorker(2)))[0] == 404


async def test_a_page_is_that_of_a_worker_that_answers() -> None:
    second = PageWorker(2)
    status, _, html = await shown("/", LoadingWorker(1), second)
    assert status == 200
    assert "those of worker 2. The 1 of 2 workers" in words(html)
    assert re.search(r"worker 1 cannot be reached.*it is loading the application", words(html))
    assert (await shown("/workers/1/", LoadingWorker(1), second))[0] == 503
    assert (await shown("/workers/3/", LoadingWorker(1), second))[0] == 404
    assert (await shown("/", LoadingWorker(1)))[0] == 503


async def test_a_page_that_asks_for_the_token_is_that_of_the_worker() -> None:
    status, _, html = await shown("/", PageWorker(1, "sesame"), PageWorker(2, "sesame"))
    assert status == 401
    assert "needs the token" in html
    assert "worker" not in html


async def test_the_head_of_a_page_has_the_length_of_the_page() -> None:
    _, headers, html = await shown("/", PageWorker(1), PageWorker(2), method="HEAD")
    assert headers["content-length"] == str(len(html.encode()))


async def test_one_worker_alone_is_no_list() -> None:
    _, _, html = await shown("/", PageWorker(1))
    assert "1 member " in words(html)
    assert "Members" not in html
    assert "of worker" not in html


@pytest.mark.parametrize(("method", "asked"), [("GET", 1), ("POST", 0)])
async def test_only_a_question_goes_to_the_next_worker(method: str, asked: int) -> None:
    first = LoadingWorker(1)
    second = StreamingWorker(2)
    client = HttpClient()
    http = SupervisorHttp([RunningSlot(1, first), RunningSlot(2, second)])
    scope = scope_of(method, "/api/dlq/letters/replay" if method == "POST" else "/api/stream")
    serving = asyncio.create_task(http(scope, client.receive, client.send))
    async with asyncio.timeout(5):
        await client.has_data.wait()
        client.leave()
        await serving
    assert len(first.asked_for) == 1
    assert len(second.asked_for) == asked
    assert client.sent[0]["status"] == (200 if asked else 503)
