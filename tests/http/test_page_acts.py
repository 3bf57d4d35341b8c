"""Operators act from the page, in a real browser, on a real service: by clicks, and by keys alone.

``REACTIVE_KAFKA_WITHOUT=chromium`` leaves it out, and nothing else does.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from reactive_kafka import App, TopicPartition
from reactive_kafka.events import ActionTaken
from reactive_kafka.http.server import serve
from reactive_kafka.testing import MemoryBroker
from tests.app.helpers import make_broker
from tests.harness.browser_tab import BrowserTab, browser_tab

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.skipif(
        "chromium" in os.environ.get("REACTIVE_KAFKA_WITHOUT", "").split(","), reason="left out"
    ),
]

TOKEN = "s3cret-T0ken"
EVIL = "<script>document.title='taken'</script><img src='http://127.0.0.1:1/x' onerror='alert(1)'>"
DIALOG = "document.querySelector('dialog[open]')"
IS_LIVE = "document.querySelector('#clock')"


class Service:
    """A running service with one channel, and all that was done to it."""

    def __init__(self, token: str | None = TOKEN, **channel: Any) -> None:
        self.actions: list[ActionTaken] = []
        self.handled: list[str] = []
        # The handler waits for this with a record that is called "stuck".
        self.stuck = asyncio.Event()
        self.fails = True
        http: dict[str, Any] = {"port": 0, "service_name": "shop"}
        if token is not None:
            http["token"] = token
        table: dict[str, Any] = {"group_id": "billing", "auto_offset_reset": "earliest"}
        table["commit_interval"] = "50ms"
        table |= {"value_deserializer": "string", **channel}
        self.app = App({"http": http, "incoming": {"orders": table}}, observer=self)
        self.broker: MemoryBroker = make_broker(partitions=2)
        self.app._connector = self.broker.connector()

        @self.app.incoming("orders")
        async def handle(value: str) -> None:
            if value == "stuck":
                await self.stuck.wait()
            if value.startswith(("bad", "<")) and self.fails:
                raise ValueError(value)
            self.handled.append(value)

    def on(self, event: object) -> None:
        if isinstance(event, ActionTaken):
            self.actions.append(event)

    def done(self) -> list[str]:
        """The actions that were carried out."""
        return [one.action for one in self.actions if one.outcome == "ok"]

    def send(self, *values: str) -> None:
        for value in values:
            self.broker.produce("orders", value.encode(), partition=0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Run it; yields its address."""
        async with self.app:
            assert self.app.http is not None
            yield self.app.http.url
            self.stuck.set()
        await self.broker.close()


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[BrowserTab]:
    async with browser_tab(tmp_path) as tab:
        await tab.see()
        yield tab


async def type_token(tab: BrowserTab, token: str = TOKEN) -> None:
    """Type the token into the dialog, where it asks for it."""
    await tab.until(f"{DIALOG}.querySelector('input[type=password]').offsetParent")
    await tab.run(f"{DIALOG}.querySelector('input[type=password]').value = {json.dumps(token)}")


async def confirm(tab: BrowserTab, button: str, expected: str) -> None:
    """Click a button of the dialog, and see the answer."""
    await tab.click(button, "dialog")
    await tab.until(f"{DIALOG}.querySelector('.said').innerText.includes({json.dumps(expected)})")


async def test_from_a_poison_alarm_to_a_skipped_record_by_clicks(tab: BrowserTab) -> None:
    service = Service(unprocessed_record_max_age="500ms", on_poison="warn")
    async with service.running() as url:
        await tab.open(url)
        service.send("stuck", "next")
        await tab.until("document.title === 'POISON - shop'")
        assert service.handled == []
        await tab.click("skip", ".channels")
        said = await tab.text("dialog[open] .what")
        assert "The record at orders-0 offset 0 counts as settled, without being handled." in said
        await type_token(tab)
        await confirm(tab, "Skip", "orders-0 offset 0 is skipped")
        await tab.click("Close", "dialog")
        await tab.until("document.title === 'UP - shop'")
        assert service.handled == ["next"]
        assert service.done() == ["skip"]
        assert TOKEN not in await tab.run("location.href")
        assert tab.complaints == []


async def test_a_channel_that_failed_for_a_record_continues_behind_it(tab: BrowserTab) -> None:
    service = Service(failure_strategy="fail", restart={"max_attempts": 0})
    async with service.running() as url:
        await tab.open(f"{url}/channels/orders")
        service.send("bad amount", "next")
        await tab.until("document.title.startsWith('DOWN')")
        await tab.until("document.querySelector('.actions')?.innerText.includes('restart')")
        await tab.click("skip a record")
        said = await tab.text("dialog[open] .what")
        assert "orders-0 offset 0" in said
        assert "Then channel orders starts again" in said
        await type_token(tab)
        await confirm(tab, "Skip", "restart: the channel is")
        await tab.until("document.title === 'UP - shop - orders'")
        await tab.until("document.body?.innerText.includes('acked 1,')")
        assert service.handled == ["next"]
        assert service.done() == ["skip", "restart"]


async def test_a_channel_is_paused_and_resumed_and_the_token_is_asked_for_once(
    tab: BrowserTab,
) -> None:
    service = Service()
    async with service.running() as url:
        await tab.open(url)
        await tab.click("pause channel orders")
        await tab.run(f"{DIALOG}.querySelector('[name=reason]').value = 'the shop moves'")
        await tab.run(
            f"{DIALOG}.querySelector('[name=reason]').dispatchEvent(new Event('input', {{ bubbles: true }}))"
        )
        assert "the reason: the shop moves" in await tab.text("dialog[open] .what")
        await type_token(tab)
        await confirm(tab, "Pause", "the channel is paused")
        await tab.click("Close", "dialog")
        await tab.until("document.querySelector('.channels .badge').innerText === 'paused'")
        assert service.app.channel("orders").paused
        await tab.click("resume channel orders")
        assert not await tab.run(f"{DIALOG}.querySelector('[type=password]').offsetParent")
        await confirm(tab, "Resume", "the channel is running")
        assert not service.app.channel("orders").paused
        assert service.done() == ["pause", "resume"]


async def test_dead_letters_are_read_and_replayed_and_stay_text(tab: BrowserTab) -> None:
    service = Service(failure_strategy="dead-letter-queue")
    async with service.running() as url:
        service.send(EVIL, "bad", "good")
        await tab.open(f"{url}/channels/orders")
        await tab.click("look")
        await type_token(tab)
        await confirm(tab, "Look", "2 records of dead-letter-topic-orders")
        await tab.click("Close", "dialog")
        shown = await tab.text(".letters")
        assert EVIL in shown
        assert "builtins.ValueError" in shown
        assert "orders-0 offset 1" in shown
        assert await tab.run("document.querySelectorAll('img, main script').length") == 0
        service.fails = False
        await tab.run("document.querySelectorAll('.letters button')[1].click()")
        said = await tab.text("dialog[open] .what")
        assert "is written to orders, and handled again there" in said
        await confirm(tab, "Replay", "1 of 1 record replayed")
        await tab.click("Close", "dialog")
        await tab.until("document.body?.innerText.includes('acked 2,')")
        assert service.done() == ["replay"]
        await tab.click("replay all")
        await confirm(tab, "Replay", "2 of 2 records replayed")
        await tab.until("document.body?.innerText.includes('acked 4,')")
        assert service.handled.count("good") == 1
        assert sorted(service.handled[-2:]) == sorted([EVIL, "bad"])
        assert (await tab.run("document.title")).startswith("UP - shop")
        assert tab.complaints == []


async def test_a_replay_that_takes_long_shows_how_far_it_is(tab: BrowserTab) -> None:
    service = Service(failure_strategy="dead-letter-queue")
    async with service.running() as url:
        service.send("bad", "bad")
        await tab.open(f"{url}/channels/orders")
        await tab.until("document.body?.innerText.includes('dead letters 2,')")
        service.fails = False
        service.broker.answer_timeout_s = 60
        held = service.broker.hold("topic_configs")
        await tab.click("replay all")
        await type_token(tab)
        await tab.click("Replay", "dialog")
        # The service answers after 10 s that it is under way.
        said = f"{DIALOG}.querySelector('.said').innerText"
        await tab.until(f"{said}.endsWith('of dead-letter-topic-orders read so far')", 20.0)
        assert await tab.run(f"Boolean({DIALOG}.querySelector('progress').offsetParent)")
        assert await tab.run(f"{DIALOG}.querySelector('button.primary').disabled")
        held.release()
        await tab.until(f"{said} === '2 of 2 records replayed'")
        await tab.until("document.body.innerText.includes('acked 2,')")
        assert service.handled == ["bad", "bad"]


async def test_a_partition_is_moved_and_the_dialog_says_what_that_repeats(tab: BrowserTab) -> None:
    service = Service()
    async with service.running() as url:
        service.send("a", "b", "c")
        await tab.open(f"{url}/channels/orders")
        await tab.until("document.body?.innerText.includes('acked 3,')")
        await tab.click("seek in partition orders-0")
        await tab.run(f"{DIALOG}.querySelector('[name=offset]').focus()")
        await tab.press("1")
        said = await tab.text("dialog[open] .what")
        assert "orders-0 continues at offset 1. It is at offset 3 now." in said
        assert "Up to 2 records are handled again." in said
        await type_token(tab)
        await confirm(tab, "Seek", "orders-0: to 1")
        await tab.until("document.body?.innerText.includes('acked 5,')")
        assert service.handled == ["a", "b", "c", "b", "c"]


@pytest.fixture
def kept_log_level() -> Iterator[None]:
    logger = logging.getLogger("reactive_kafka")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.mark.usefixtures("kept_log_level")
async def test_stop_start_and_the_log_level(tab: BrowserTab) -> None:
    service = Service()
    async with service.running() as url:
        await tab.open(f"{url}/channels/orders")
        await tab.click("stop")
        assert "leaves group billing" in await tab.text("dialog[open] .what")
        await type_token(tab)
        await confirm(tab, "Stop", "the channel is stopped")
        await tab.click("Close", "dialog")
        await tab.click("start", ".actions")
        await confirm(tab, "Start", "the channel is ")
        await tab.open(url)
        await tab.until("location.pathname === '/'")
        await tab.click("log level")
        await tab.run(f"{DIALOG}.querySelector('[name=level]').value = 'warning'")
        await confirm(tab, "Set", "reactive_kafka: warning, was ")
        assert logging.getLogger("reactive_kafka").level == logging.WARNING
        assert service.done() == ["stop", "start", "log-level"]


async def test_without_a_token_in_the_service_there_are_no_buttons_and_the_page_says_why(
    tab: BrowserTab,
) -> None:
    service = Service(token=None)
    async with service.running() as url:
        for path in ("/", "/channels/orders"):
            await tab.open(url + path)
            await tab.until(f"{IS_LIVE} && location.pathname === '{path}'")
            shown = await tab.text()
            assert (
                "Nothing can be changed from this page, because the service has no token" in shown
            )
            assert (
                await tab.run(
                    "[...document.querySelectorAll('button')].filter(one => one.offsetParent && one.innerText !== 'find').length"
                )
                == 0
            )


async def test_a_wrong_token_changes_nothing_and_is_asked_for_again(tab: BrowserTab) -> None:
    service = Service()
    async with service.running() as url:
        await tab.open(url)
        await tab.click("pause channel orders")
        await type_token(tab, "guessed")
        await confirm(tab, "Pause", "this needs the token")
        assert service.actions == []
        assert not service.app.channel("orders").paused
        assert await tab.run("sessionStorage.length") == 0
        await type_token(tab)
        await confirm(tab, "Pause", "the channel is paused")
        assert service.done() == ["pause"]


async def test_a_refusal_is_shown_as_text(tab: BrowserTab) -> None:
    service = Service()
    async with service.running() as url:
        await tab.open(f"{url}/channels/orders")
        await tab.click("skip a record")
        for name, value in (("topic", EVIL), ("partition", "0"), ("offset", "7")):
            await tab.run(f"{DIALOG}.querySelector('[name={name}]').value = {json.dumps(value)}")
        await type_token(tab)
        await confirm(tab, "Skip", "does not read the topic <script>")
        assert await tab.run("document.querySelectorAll('img, main script').length") == 0
        assert service.done() == []
        assert tab.complaints == [] or all("409" in one for one in tab.complaints)


async def test_by_keys_alone_and_escape_changes_nothing(tab: BrowserTab) -> None:
    service = Service()
    async with service.running() as url:
        await tab.open(url)
        await tab.until("document.querySelector('.row-actions button')")
        active = "(document.activeElement.ariaLabel || document.activeElement.innerText || document.activeElement.name)"
        for _ in range(20):
            await tab.press("Tab")
            if await tab.run(active) == "pause channel orders":
                break
        assert await tab.run(active) == "pause channel orders"
        await tab.press("Enter")
        await tab.until(DIALOG)
        name = await tab.run(
            "document.getElementById(document.querySelector('dialog').getAttribute('aria-labelledby')).innerText"
        )
        assert name == "Pause channel orders?"
        await tab.press("Escape")
        await tab.until(f"!{DIALOG}")
        assert await tab.run(active) == "pause channel orders"
        await tab.press("Enter")
        await tab.until(DIALOG)
        assert await tab.run(active) == "token"
        await tab.press("Shift+Tab")
        assert await tab.run(active) == "reason"
        await tab.press("Tab", *TOKEN, "Enter")
        await tab.until(f"{DIALOG}.querySelector('.said').innerText.includes('is paused')")
        assert await tab.run(active) == "Close"
        await tab.press("Enter")
        await tab.until(f"!{DIALOG}")
        # The button has become another one meanwhile, in the same place.
        await tab.until(f"{active} === 'resume channel orders'")
        assert service.done() == ["pause"]


async def test_under_a_mount_path_it_acts_too(tab: BrowserTab) -> None:
    service = Service()
    host = Starlette(routes=[Mount("/kafka", app=service.app.asgi)])
    async with service.running(), serve(host, "127.0.0.1", 0) as server:
        await tab.open(f"{server.url}/kafka/channels/orders")
        # A mounted page needs the token to be read.
        await tab.until("document.querySelector('input[type=password]')")
        await tab.run(f"document.querySelector('input').value = '{TOKEN}'")
        await tab.run("document.querySelector('form').requestSubmit()")
        await tab.click("pause", ".actions")
        await confirm(tab, "Pause", "the channel is paused")
        assert service.done() == ["pause"]


async def test_of_several_workers_each_answer_is_shown(tab: BrowserTab) -> None:
    service = Service()

    async def paused(_: Request) -> Response:
        workers = [
            {"worker": 1, "status": 200, "result": "the channel is paused"},
            {"worker": 2, "status": 409, "error": f"it has {EVIL}"},
        ]
        return JSONResponse({"result": "done by 1 of 2 workers", "workers": workers})

    routes = [
        Route("/api/channels/orders/pause", paused, methods=["POST"]),
        Mount("/", app=service.app.asgi),
    ]
    async with service.running(), serve(Starlette(routes=routes), "127.0.0.1", 0) as server:
        await tab.open(server.url)
        await tab.until("document.querySelector('input[type=password]')")
        await tab.run(f"document.querySelector('input').value = '{TOKEN}'")
        await tab.run("document.querySelector('form').requestSubmit()")
        await tab.click("pause channel orders")
        said = "done by 1 of 2 workers; worker 1: the channel is paused; worker 2: it has <script>"
        await confirm(tab, "Pause", said)
        assert await tab.run("document.querySelectorAll('img, main script').length") == 0


STRANGER = """<!doctype html><title>stranger</title><iframe name="posted"></iframe>
<iframe name="framed"></iframe><form method="post" target="posted"></form><script>
async function attack(service, token) {
  const said = []
  const url = `${service}/api/channels/orders/pause`
  for (const options of [
    { mode: "no-cors", body: "{}" },
    { mode: "no-cors", body: new URLSearchParams("a=b") },
    { body: "{}", headers: { "Content-Type": "application/json", Authorization: `Bearer ${token}` } },
    { body: "{}", headers: { Authorization: `Bearer ${token}` }, credentials: "include" },
  ]) {
    try {
      const answer = await fetch(url, { method: "POST", ...options })
      said.push(answer.type)
    } catch (error) { said.push(error.name) }
  }
  for (const path of ["/api/channels", "/api/dlq/dead-letter-topic-orders", "/"]) {
    try {
      const answer = await fetch(service + path, { headers: { Authorization: `Bearer ${token}` } })
      said.push(await answer.text())
    } catch (error) { said.push(error.name) }
  }
  return said
}
</script>"""


async def test_the_page_of_a_stranger_can_do_nothing_even_with_the_token(tab: BrowserTab) -> None:
    service = Service(failure_strategy="dead-letter-queue")

    async def stranger(_: Request) -> Response:
        return HTMLResponse(STRANGER)

    attacker = Starlette(routes=[Route("/", stranger)])
    async with service.running() as url, serve(attacker, "127.0.0.1", 0) as server:
        await tab.open(server.url)
        await tab.until("typeof attack === 'function'")
        said = await tab.run(f"attack({json.dumps(url)}, {json.dumps(TOKEN)})")
        assert said[:2] == ["opaque", "opaque"], "no answer can be read"
        assert said[2:] == ["TypeError"] * 5
        await tab.run(
            f"document.forms[0].action = {json.dumps(url + '/api/channels/orders/pause')}; "
            f"document.forms[0].submit(); frames.framed.location = {json.dumps(url)}"
        )
        # What is in a frame is no document that the page can read.
        for frame in (0, 1):
            await tab.until(
                f"document.querySelectorAll('iframe')[{frame}].contentDocument === null"
            )
        assert service.actions == []
        assert not service.app.channel("orders").paused
        assert service.broker.end(TopicPartition("orders", 0)) == 0


async def find(tab: BrowserTab, offset: int, expected: str) -> str:
    """Ask what happened to a record, and see the answer."""
    await tab.until("document.querySelector('.find')?.offsetParent")
    for name, value in (("topic", "orders"), ("partition", "0"), ("offset", str(offset))):
        await tab.run(f"document.querySelector('.find [name={name}]').value = '{value}'")
    async with asyncio.timeout(10):
        while True:
            await tab.run("document.querySelector('.found')?.remove()")
            await tab.click("find")
            await tab.until("document.querySelector('.found')")
            shown = await tab.text(".found")
            if expected in shown:
                return shown


async def test_a_record_is_found_in_flight_and_skipped_from_there(tab: BrowserTab) -> None:
    service = Service()
    async with service.running() as url:
        service.send("stuck", "next")
        await tab.open(url)
        await tab.until("document.querySelector('.find [name=topic]')?.value === 'orders'")
        shown = await find(tab, 0, "in flight")
        assert "handle has it, for" in shown
        assert "waits for a handler" in await find(tab, 1, "waits for a handler")
        await find(tab, 0, "in flight")
        await tab.click("skip this record in channel orders")
        await type_token(tab)
        await confirm(tab, "Skip", "orders-0 offset 0 is skipped")
        await tab.click("Close", "dialog")
        shown = await find(tab, 0, "settled and committed")
        assert "skipped" in shown
        assert "asked to skip it" in shown
        assert "not written yet" in await find(tab, 99, "not written yet")
        assert tab.complaints == []


async def test_a_record_leads_to_its_dead_letter_which_stays_text(tab: BrowserTab) -> None:
    service = Service(failure_strategy="dead-letter-queue")
    async with service.running() as url:
        service.send("good", EVIL)
        await tab.open(f"{url}/channels/orders")
        shown = await find(tab, 1, "dead letter")
        assert (
            f"became a dead letter in dead-letter-topic-orders: ValueError: {EVIL}"[:150] in shown
        )
        await tab.click("show its dead letter")
        await type_token(tab)
        await confirm(tab, "Look", "1 record of dead-letter-topic-orders")
        await tab.click("Close", "dialog")
        assert EVIL in await tab.text(".found .letters")
        assert await tab.run("document.querySelectorAll('img, main script').length") == 0
        assert "remembers no failure" in await find(tab, 0, "settled and committed")
        assert (await tab.run("document.title")).startswith("UP - shop")
        assert tab.complaints == []
