"""All members of a service on one page: peers that answer, and those that cannot be reached."""

from __future__ import annotations

import asyncio
import html
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from reactive_kafka.http.asgi import make_asgi
from reactive_kafka.http.guard import Guard
from reactive_kafka.http.member_json import members_in
from reactive_kafka.http.members import Members
from reactive_kafka.http.server import serve
from tests.faults.driver import free_port
from tests.harness.browser_tab import browser_tab
from tests.http.applike import FactsApp

HOST = "127.0.0.1"
TOKEN = "sesame"
EVIL = "<script>document.title='taken'</script>"

Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def ask(peers: list[str], token: str | None = None, **query: str) -> list[dict[str, Any]]:
    """Ask a process with these peers."""
    asgi = make_asgi(FactsApp(), lambda: Guard(token=token), peers=lambda: peers)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    transport = httpx.ASGITransport(app=asgi)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://app", headers=headers
    ) as client:
        answer = await client.get("/api/members", params=query)
        assert answer.status_code == 200
        return list(answer.json()["members"])


@asynccontextmanager
async def raw_server(handle: Handle) -> AsyncIterator[str]:
    """A server that answers as *handle* says; yields its address."""
    writers: list[asyncio.StreamWriter] = []

    async def handle_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await handle(reader, writer)

    server = await asyncio.start_server(handle_and_close, HOST, 0)
    try:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            # What was not taken from it is dropped.
            writer.transport.abort()
        await asyncio.sleep(0)


def answers(text: bytes) -> Handle:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        writer.close()

    return handle


async def test_a_process_without_peers_is_its_only_member() -> None:
    (member,) = await ask([])
    assert (member["name"], member["host"], member["pid"]) == ("shop", "host-7", 4711)
    assert member["is_reached"]
    (channel,) = member["channels"]
    assert (channel["channel"], channel["state"], channel["lag"]) == ("orders", "running", 5)


async def test_peers_are_asked_with_the_token_and_do_not_ask_their_own_peers() -> None:
    async with AsyncExitStack() as stack:
        ports = [free_port(), free_port()]
        places = [f"{HOST}:{port}" for port in ports]
        for port in ports:
            asgi = make_asgi(FactsApp(pid=port), lambda: Guard(token=TOKEN), peers=lambda: places)
            await stack.enter_async_context(serve(asgi, HOST, port))
        async with asyncio.timeout(5):
            found = await ask(places, TOKEN)
        assert [one["address"] for one in found] == [None, *places]
        assert all(one["is_reached"] for one in found)
        refused = await ask(places, "another")
        assert [one["is_reached"] for one in refused] == [True, False, False]
        assert refused[1]["reason"] == (
            "it answered 401: this needs the token: Authorization: Bearer ..."
        )


async def test_a_process_that_is_among_its_own_peers_is_listed_once() -> None:
    port = free_port()
    place = f"{HOST}:{port}"
    asgi = make_asgi(FactsApp(), peers=lambda: [place])
    async with serve(asgi, HOST, port):
        (member,) = await ask([place])
        assert member["address"] is None


async def test_a_peer_that_is_away_is_named_with_the_reason() -> None:
    place = f"{HOST}:{free_port()}"
    found = await ask([place])
    assert [one["is_reached"] for one in found] == [True, False]
    assert found[1]["address"] == place
    assert found[1]["reason"] == "Connection refused"
    (_, unknown) = await ask(["no-such-host.invalid:9000"])
    assert not unknown["is_reached"]
    assert unknown["reason"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", "it does not speak HTTP/1"),
        (b"", "it does not speak HTTP/1"),
        (b"HTTP/1.1 500 Oh\r\n\r\n<b>broken\n", "it answered 500: <b>broken"),
        (b"HTTP/1.1 301 Gone\r\nLocation: http://evil/\r\n\r\n", "it answered 301: "),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", "its answer cannot be read: it has no list of members"),
        (b"HTTP/1.1 200 OK\r\n\r\n{", "its answer cannot be read: "),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 900_000, "its answer cannot be read: it is too deep"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 2_000_000, "more than 1048576 bytes"),
        (b"x" * 2_000_000, ""),
    ],
)
async def test_whatever_a_peer_says_is_a_reason(said: bytes, reason: str) -> None:
    async with raw_server(answers(said)) as place:
        found = await ask([place])
        assert not found[1]["is_reached"]
        assert reason in found[1]["reason"]


async def test_a_peer_that_says_nothing_is_given_up_after_two_seconds() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(handle) as place, asyncio.timeout(8):
        found = await ask([place])
        assert found[1]["reason"] == "no answer within 2 s"


async def test_the_page_without_scripts_lists_peers_and_says_which_it_cannot_reach() -> None:
    away = f"{HOST}:{free_port()}"
    told = {
        "name": EVIL,
        "host": EVIL,
        "reason": EVIL,
        "is_reached": True,
        "channels": [{"lag": 7}],
    }
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    async with raw_server(answers(head + json.dumps({"members": [told]}).encode())) as evil:
        transport = httpx.ASGITransport(app=make_asgi(FactsApp(), peers=lambda: [away, evil]))
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            first = (await client.get("/")).text
            channel = (await client.get("/channels/orders")).text
            alone = (await client.get("/?only=self")).text
    assert EVIL not in first
    _, _, listed = first.partition("<h2>Members</h2>")
    assert '<a href="./">this process</a> <span class="badge up">running</span>' in listed
    assert f'<a href="http://{away}/">{away}</a> <span class="badge down">cannot be' in listed
    assert "Connection refused" in listed
    assert listed.count(html.escape(EVIL)) == 2
    assert "3 members" in first
    assert "3 members" in channel
    assert "Members" not in channel
    assert away not in alone


@pytest.mark.chromium
@pytest.mark.skipif(
    "chromium" in os.environ.get("REACTIVE_KAFKA_WITHOUT", "").split(","), reason="left out"
)
async def test_the_page_shows_its_peers_and_says_which_it_cannot_reach(tmp_path: Path) -> None:
    away = f"{HOST}:{free_port()}"
    hostile = json.dumps({"members": [{"name": EVIL, "host": EVIL, "is_reached": True}]})
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    async with (
        browser_tab(tmp_path) as tab,
        serve(make_asgi(FactsApp(pid=5000)), HOST, 0) as peer,
        raw_server(answers(head + hostile.encode())) as evil,
    ):
        there = peer.url.removeprefix("http://")
        asgi = make_asgi(FactsApp(), peers=lambda: [there, away, evil])
        async with serve(asgi, HOST, 0) as server:
            await tab.open(server.url)
            # The page as the server draws it has the same rows. The scripts draw them again.
            await tab.until("document.querySelector('#clock')")
            await tab.until("document.querySelectorAll('.members tbody tr').length === 4")
            shown = await tab.text(".members")
            assert f"{there} running" in shown
            assert f"{away} cannot be reached" in shown
            assert EVIL in shown
            assert await tab.run("document.querySelectorAll('img, main script').length") == 0
            await tab.until("document.querySelector('#about').innerText.includes('4 members')")
            links = await tab.run(
                "[...document.querySelectorAll('.members a')].map(one => one.href)"
            )
            assert links == [
                f"{server.url}/",
                f"http://{there}/",
                f"http://{away}/",
                f"http://{evil}/",
            ]
            assert tab.complaints == []


def worker_member(number: int, **changes: Any) -> dict[str, Any]:
    """What a supervisor says of one worker."""
    channel = {"channel": "orders", "partition_count": 3, "lag": 40, "in_flight": 2, "poison": 1}
    plain = {
        "worker": number,
        "address": None,
        "is_reached": True,
        "status": "UP",
        "state": "running",
        "channels": [channel],
    }
    return {**plain, **changes}


def behind_supervisor(members: list[dict[str, Any]]) -> Starlette:
    """The application of the first worker, with what its supervisor answers by itself."""

    async def listed(_: Request) -> JSONResponse:
        return JSONResponse({"members": members})

    return Starlette(routes=[Route("/api/members", listed), Mount("/", app=make_asgi(FactsApp()))])


@pytest.mark.chromium
@pytest.mark.skipif(
    "chromium" in os.environ.get("REACTIVE_KAFKA_WITHOUT", "").split(","), reason="left out"
)
async def test_the_first_screen_says_which_worker_it_shows_and_what_all_have(
    tmp_path: Path,
) -> None:
    gone = worker_member(1, is_reached=False, reason="it has ended", channels=[])
    members = [gone, worker_member(2), worker_member(3)]
    async with (
        browser_tab(tmp_path) as tab,
        serve(behind_supervisor(members), HOST, 0) as server,
    ):
        await tab.open(server.url)
        await tab.until("document.querySelector('p.workers a') !== null")
        assert await tab.text("p.workers") == (
            "The channels below are those of worker 2. The 2 of 3 workers that can be reached "
            "together have 6 partitions, lag 80, 4 in flight, poison 2. Pages: worker 1 worker 2 "
            "worker 3"
        )
        links = await tab.run("[...document.querySelectorAll('p.workers a')].map(one => one.href)")
        assert links == [f"{server.url}/workers/{number}/" for number in (1, 2, 3)]
        await tab.open(f"{server.url}/channels/orders")
        await tab.until("document.querySelectorAll('p.workers a').length === 3")
        assert (await tab.text("p.workers")).startswith(
            "This is the channel of worker 2. The 2 of 3 workers that can be reached together "
            "have 6 partitions,"
        )
        links = await tab.run("[...document.querySelectorAll('p.workers a')].map(one => one.href)")
        assert links == [f"{server.url}/workers/{number}/channels/orders" for number in (1, 2, 3)]
        assert tab.complaints == []

    alone = [worker_member(1), worker_member(2, worker=None, address="shop-1:9000")]
    async with (
        browser_tab(tmp_path) as tab,
        serve(behind_supervisor(alone), HOST, 0) as server,
    ):
        await tab.open(server.url)
        await tab.until("document.querySelectorAll('.members tbody tr').length === 2")
        assert await tab.run("document.querySelector('p.workers').hidden") is True


async def test_many_pages_ask_a_peer_once() -> None:
    peer = FactsApp(pid=5000)
    async with serve(make_asgi(peer), HOST, 0) as server:
        place = server.url.removeprefix("http://")
        asgi = make_asgi(FactsApp(), peers=lambda: [place])
        transport = httpx.ASGITransport(app=asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            before = peer.looks
            found = await asyncio.gather(*(client.get("/api/members") for _ in range(20)))
        assert {len(one.json()["members"]) for one in found} == {2}
        assert peer.looks - before == 1


@pytest.mark.virtual_time
async def test_an_answer_is_kept_for_two_seconds_and_no_longer() -> None:
    peers = ["first:no-port"]
    members = Members(lambda: peers, lambda: None)
    for address, waits_s in (("first:no-port", 1.9), ("first:no-port", 0.1), ("second:none", 0)):
        (found,) = await members.others()
        assert found["address"] == address
        peers = ["second:none"]
        await asyncio.sleep(waits_s)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
_channel = st.dictionaries(
    st.sampled_from(["channel", "state", "lag", "in_flight", "poison", "evil"]), _json
)
_member = st.dictionaries(
    st.sampled_from(["name", "host", "pid", "is_reached", "reason", "address", "evil"]), _json
)


@given(st.lists(_member | _json, max_size=4), st.lists(_channel | _json, max_size=3))
def test_of_an_answer_only_known_fields_of_the_right_type_are_taken(
    members: list[Any], channels: list[Any]
) -> None:
    for member in members:
        if isinstance(member, dict):
            member["channels"] = channels
    body = json.dumps({"members": members}).encode()
    try:
        found = members_in(body, address="a:1")
    except ValueError:
        assert members == []
        return
    for member in found:
        assert member["address"] == "a:1", "a peer cannot say that it is another one"
        assert "evil" not in member
        assert isinstance(member["is_reached"], bool)
        for name in ("name", "host", "reason"):
            text = member[name]
            assert text is None or (isinstance(text, str) and "\n" not in text)
        for channel in member["channels"]:
            assert channel["lag"] is None or isinstance(channel["lag"], int | float)
            assert channel["poison"] is None or isinstance(channel["poison"], int | float)
    # Browsers read it, too.
    json.dumps(found, allow_nan=False)
