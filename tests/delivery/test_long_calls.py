"""When long calls are told, and how long health shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from reactive_kafka import IncomingSettings
from reactive_kafka.delivery.lanes.queue import LaneQueue
from reactive_kafka.delivery.long_calls import TOLD_EVERY_S, LongCalls
from reactive_kafka.events import HandlerSlow
from reactive_kafka.testing import FakeClock
from tests.app.helpers import Recorder
from tests.delivery.worker_setups import worker_setup


def long_calls(clock: FakeClock, recorder: Recorder) -> LongCalls:
    settings = IncomingSettings(name="orders", topics=("orders",), group_id="g")
    setup = worker_setup(settings, LaneQueue(shared=False), clock, cast(Any, None))
    return LongCalls(replace(setup.channel, observer=recorder))


async def test_they_are_told_once_in_ten_minutes_and_shown_with_the_longest() -> None:
    clock = FakeClock()
    recorder = Recorder()
    calls = long_calls(clock, recorder)
    for took_s in (5.0, 6.0, 9.0, 7.0):
        calls.look(took_s)
    assert [event.took_s for event in recorder.of(HandlerSlow)] == [6.0]
    (shown,) = calls.warnings(clock.monotonic())
    assert "a handler call took 9.0 s" in shown

    clock.advance(TOLD_EVERY_S)
    assert list(calls.warnings(clock.monotonic())) == []
    calls.look(6.5)
    assert [event.took_s for event in recorder.of(HandlerSlow)] == [6.0, 6.5]
    (shown,) = calls.warnings(clock.monotonic())
    assert "a handler call took 6.5 s" in shown


@pytest.mark.parametrize("took_s", [0.0, 4.9, 5.0])
async def test_a_call_within_the_grace_is_not_told(took_s: float) -> None:
    recorder = Recorder()
    calls = long_calls(FakeClock(), recorder)
    calls.look(took_s)
    assert (recorder.events, list(calls.warnings(0.0))) == ([], [])
