"""Actions on a real server: large and slow bodies, strangers' names, and a flood of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from reactive_kafka import App
from reactive_kafka.events import ActionTaken
from reactive_kafka.testing import MemoryBroker

TOKEN = "s3cret-T0ken"
BEARER = {"authorization": f"Bearer {TOKEN}"}
PAUSE = "/api/channels/orders/pause"


class Audit:
    """Counts the actions that were taken."""

    def __init__(self) -> None:
        self.actions: list[ActionTaken] = []

    def on(self, event: object) -> None:
        if isinstance(event, ActionTaken):
            self.actions.append(event)


@dataclass
class Served:
    """A running application with its server."""

    app: App
    client: httpx.AsyncClient
    audit: Audit

    @property
    def port(self) -> int:
        assert self.app.http is not None
        return self.app.http.port

    async def raw(self, head: str, body: bytes = b"") -> bytes:
        """Send bytes, and return all that comes back until the server has closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(head.replace("\n", "\r\n").encode() + body)
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    audit = Audit()
    app = App(
        {
            "incoming": {"orders": {"group_id": "g"}},
            "http": {"port": 0, "token_file": str(token)},
        },
        observer=audit,
    )
    app._connector = MemoryBroker().connector()

    @app.incoming("orders")
    async def handler(value: bytes) -> None: ...

    async with app:
        assert app.http is not None
        url = f"http://127.0.0.1:{app.http.port}"
        async with httpx.AsyncClient(trust_env=False, base_url=url) as client:
            yield Served(app, client, audit)


@pytest.mark.parametrize("megabytes", [1, 30])
async def test_a_huge_body_is_refused_before_it_is_read(served: Served, megabytes: int) -> None:
    chunk = b"x" * 65_536

    async def body() -> AsyncIterator[bytes]:
        for _ in range(megabytes * 16):
            yield chunk

    headers = {"content-type": "application/json", **BEARER}
    try:
        answer = await served.client.post(PAUSE, content=body(), headers=headers)
    except httpx.TransportError:
        # The server has closed the connection while the client was still sending.
        pass
    else:
        assert answer.status_code == 413
    assert (await served.client.get("/health/live")).status_code == 200
    assert not served.app.channel("orders").paused


async def test_a_length_that_is_a_lie_is_no_action(served: Served) -> None:
    head = f"POST {PAUSE} HTTP/1.1\nhost: localhost\nconnection: close\nauthorization: Bearer {TOKEN}\n"
    short = await served.raw(
        head + 'content-type: application/json\ncontent-length: 2\n\n{}{"x":1}'
    )
    assert b" 200 " in short.split(b"\r\n")[0]
    served.app.channel("orders").resume("paused by an operator")
    wrong = await served.raw(head + "content-length: -1\n\n")
    assert b" 400 " in wrong.split(b"\r\n")[0]
    assert not served.app.channel("orders").paused


async def test_a_name_of_a_stranger_is_refused_even_with_the_token(served: Served) -> None:
    """DNS rebinding: the name is the attacker's, and the address ours."""
    for headers in (
        {"host": "evil.example", **BEARER},
        {"host": "evil.example", "origin": "http://evil.example", **BEARER},
    ):
        answer = await served.client.post(PAUSE, json={}, headers=headers)
        assert answer.status_code == 421
    assert not served.app.channel("orders").paused
    assert served.audit.actions == []


async def test_a_browser_may_not_ask_for_leave_to_send_the_token(served: Served) -> None:
    """The question of a browser before a request of another origin gets no permission."""
    answer = await served.client.options(
        PAUSE,
        headers={
            "origin": "http://evil.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization",
        },
    )
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_flood_of_wrong_tokens_leaves_no_line_and_the_right_one_works(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = {"authorization": "Bearer wrong"}
    for _ in range(20):
        answers = await asyncio.gather(
            *(served.client.post(PAUSE, json={}, headers=wrong) for _ in range(50))
        )
        assert {answer.status_code for answer in answers} == {401}
    assert served.audit.actions == []
    assert "asked for" not in caplog.text
    assert (await served.client.post(PAUSE, json={}, headers=BEARER)).status_code == 200
    assert [one.remote for one in served.audit.actions] == ["127.0.0.1"]
