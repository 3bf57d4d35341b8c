"""What the tests of applications note of a fetcher's work, which no event and no fact tells."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reactive_kafka.fetching.fetcher import Fetcher
from reactive_kafka.fetching.intake import RecordIntake


def sizes_of_chunks(patch: pytest.MonkeyPatch) -> list[int]:
    """How many records each chunk of a poll brings from now on."""
    sizes = list[int]()
    take = RecordIntake.take

    def noted(intake: RecordIntake, poll: Any) -> None:
        sizes.extend(len(chunk.records) for chunk in poll.chunks)
        take(intake, poll)

    patch.setattr(RecordIntake, "take", noted)
    return sizes


def times_of_looks(patch: pytest.MonkeyPatch) -> list[float]:
    """When partitions are looked at for room, one by one."""
    return _times_of_calls(patch, RecordIntake, "holding")


def times_of_plans(patch: pytest.MonkeyPatch) -> list[float]:
    """When a poll is planned, whether or not it is made."""
    return _times_of_calls(patch, Fetcher, "plan_poll")


def _times_of_calls(patch: pytest.MonkeyPatch, of: type, name: str) -> list[float]:
    times = list[float]()
    called = getattr(of, name)

    def noted(*arguments: Any) -> Any:
        times.append(asyncio.get_running_loop().time())
        return called(*arguments)

    patch.setattr(of, name, noted)
    return times
