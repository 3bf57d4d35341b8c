"""The durations of the calls that one worker makes one after the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reactive_kafka.delivery.runners.record_runner import SHORT_S
from tests.delivery.worker_setups import TimedCalls


def test_the_wait_of_a_task_that_a_call_has_left_behind_shortens_no_later_call() -> None:
    calls = TimedCalls()
    waits, durations = calls.waits, calls.durations
    records: list[Any] = [SimpleNamespace(), SimpleNamespace(), SimpleNamespace()]
    first, second, third = records
    waits.ends(waits.begins(first, 0.0), 0.5)
    durations.observe(0, first, 0.0, 1.0)
    # While the second call runs, a task of the first one waits.
    waits.ends(waits.begins(first, 1.1), 1.6)
    durations.observe(0, second, 1.0, 2.0)
    durations.observe(0, third, 2.0, 2.0 + SHORT_S)
    assert calls.histogram.sum_s == pytest.approx(0.5 + 1.0 + SHORT_S)
