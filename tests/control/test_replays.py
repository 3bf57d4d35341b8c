"""Replays that operators ask for while an application stops and starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reactive_kafka.control.arguments import ReplayArguments
from reactive_kafka.control.replays import Replays
from reactive_kafka.tasks import Tasks


async def test_a_replay_that_is_refused_during_a_stop_is_none_that_is_under_way() -> None:
    """The next run of the application, in the same process, has the same replays."""
    tasks = Tasks()
    await tasks.end(0)
    stopping: Any = SimpleNamespace(of=lambda topic: (None, tasks))
    replays = Replays(stopping)
    for _ in range(2):
        with pytest.raises(Exception, match="the application stops"):
            await replays.start("letters", ReplayArguments(to=None, limit=None, only=None))
