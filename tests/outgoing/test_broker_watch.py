"""When the brokers of an outgoing channel are asked whether they are there."""

from __future__ import annotations

import asyncio

import pytest

from reactive_kafka import TransientBrokerError
from reactive_kafka.events import BrokerAvailable, BrokerUnavailable
from reactive_kafka.outgoing.queue.broker_watch import CHECK_S, BrokerWatch
from reactive_kafka.testing import VirtualTimeLoop
from tests.app.helpers import Recorder, in_virtual_time, now


class Brokers:
    """Brokers that can be away, and a watch that asks them."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self.are_away = False
        self.asked_at = list[float]()
        self.answers = 0
        self.recorder = Recorder()
        self.watch = BrokerWatch("invoices", self._check, loop.clock, self.recorder, self._answered)
        self._watching = asyncio.create_task(self.watch.run())

    async def _check(self) -> None:
        self.asked_at.append(now())
        if self.are_away:
            raise TransientBrokerError("no broker answers")

    def _answered(self) -> None:
        self.answers += 1

    async def stop(self) -> None:
        self._watching.cancel()
        await asyncio.wait([self._watching])


@in_virtual_time
async def test_brokers_are_asked_every_two_seconds_and_not_after_a_confirmed_write() -> None:
    brokers = Brokers()
    await asyncio.sleep(3 * CHECK_S + 0.1)
    assert len(brokers.asked_at) == 3
    assert brokers.answers == 3
    for _ in range(5):
        # A channel that sends needs no questions.
        await asyncio.sleep(CHECK_S * 0.9)
        brokers.watch.heard()
    assert len(brokers.asked_at) == 3
    await asyncio.sleep(2 * CHECK_S)
    assert len(brokers.asked_at) >= 4
    await brokers.stop()


@in_virtual_time
async def test_an_outage_ends_with_an_answer_and_not_with_a_late_confirmation() -> None:
    brokers = Brokers()
    brokers.are_away = True
    await asyncio.sleep(CHECK_S + 0.1)
    assert brokers.watch.silence == "no broker answers"
    brokers.watch.heard()
    brokers.are_away = False
    await asyncio.sleep(CHECK_S)
    assert brokers.watch.silence is None
    assert brokers.answers == 1
    (away,) = brokers.recorder.of(BrokerUnavailable)
    assert (away.channel, away.reason) == ("invoices", "no broker answers")
    (back,) = brokers.recorder.of(BrokerAvailable)
    assert back.away_s == pytest.approx(CHECK_S)
    await brokers.stop()
