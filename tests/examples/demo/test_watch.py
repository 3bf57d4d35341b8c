"""The demo's look at health over HTTP, and at the events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from examples.demo.checks import Found, Place
from examples.demo.watch import PoisonEvents, ReadyProbe, poison_in
from reactive_kafka.http.asgi import make_asgi
from reactive_kafka.http.server import serve
from reactive_kafka.observe.events import ChannelFailed, RecordPoisoned
from tests.http.applike import FactsApp
from tests.observe.samples import ORDERS_0, app, channel, poison

HELD = Place(ORDERS_0, 17)


def test_reports_of_poison_are_kept_and_other_events_are_not() -> None:
    events = PoisonEvents()
    events.on(ChannelFailed(channel="orders", reason="no"))
    events.on(
        RecordPoisoned(
            channel="orders",
            partition=ORDERS_0,
            offset=17,
            age_s=60.1,
            limit_s=60.0,
            waiting=3,
            on_poison="warn",
        )
    )
    assert events.found == [Found(HELD, 60.1, 60.0)]


def test_an_answer_without_checks_names_nothing() -> None:
    assert poison_in({}) == []
    assert poison_in({"checks": [{"name": "application", "data": {}}]}) == []


async def seen(probe: ReadyProbe, fact: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not fact():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.02)


async def test_the_probe_sees_red_with_the_record_and_green_and_silence() -> None:
    served = FactsApp()
    served.now = app(channel())
    async with serve(make_asgi(served), "127.0.0.1", 0) as server:
        probe = ReadyProbe(server.url)
        watching = asyncio.create_task(probe.run())
        await seen(probe, lambda: probe.last is not None)
        assert probe.last is not None
        assert (probe.last.status, probe.last.poison) == (200, frozenset())

        served.now = app(channel(on_poison="pause-partition", poison=(poison(),)))
        await seen(probe, lambda: probe.has_seen(lambda answer: answer.status == 503))
        assert probe.last.poison == {HELD}
    await seen(probe, lambda: probe.has_seen(lambda answer: answer.status == 0))
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
