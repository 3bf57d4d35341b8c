"""The end of a session, for a client that stays and for one that is replaced."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from reactive_kafka import TopicPartition
from reactive_kafka.assignment.lifeline import Lifeline
from reactive_kafka.testing import VirtualTimeLoop
from tests.app.helpers import in_virtual_time, now
from tests.partitions.reading import lane_of, partitions_read

A = TopicPartition("orders", 0)


class Session:
    """A client whose session ends at a time, and of whom nothing else is asked."""

    def __init__(self, ends_at: float) -> None:
        self.ends_at = ends_at

    def session_ends_at(self) -> float:
        return self.ends_at


def watching(
    ends_in_s: float, session: Session | None = None
) -> tuple[Lifeline, Any, list[BaseException]]:
    """A lifeline over one partition that is read, whose session ends so soon; the partitions, and
    what failed.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    partitions, failed = partitions_read(A), list[BaseException]()
    context: Any = SimpleNamespace(
        clock=loop.clock,
        channel="orders",
        observer=SimpleNamespace(on=lambda event: None),
        problems=SimpleNamespace(session_over=False),
    )
    workers: Any = SimpleNamespace(suspended=lambda: None)
    lifeline = Lifeline(
        context, partitions, partitions._lanes, workers, lambda: None, failed.append
    )
    client: Any = session or Session(loop.clock.monotonic() + ends_in_s)
    lifeline.begin(client)
    return lifeline, partitions, failed


@in_virtual_time
async def test_a_client_whose_session_is_over_starts_no_record() -> None:
    lifeline, partitions, failed = watching(5.0)
    await asyncio.sleep(10)
    assert lane_of(partitions, A).state == "suspended"
    assert partitions.is_alone
    assert lifeline.not_ready(now()) is not None
    lifeline.end()
    assert failed == []


@in_virtual_time
async def test_a_session_that_turns_out_to_be_shorter_ends_no_later_than_it_does() -> None:
    session = Session(now() + 45.0)
    lifeline, partitions, failed = watching(45.0, session)
    # The answer about the group's settings comes a moment after the start.
    await asyncio.sleep(0.1)
    session.ends_at = now() + 6.0
    await asyncio.sleep(5.9)
    assert lane_of(partitions, A).state == "open"
    await asyncio.sleep(0.2)
    assert lane_of(partitions, A).state == "suspended"
    lifeline.end()
    assert failed == []


@in_virtual_time
async def test_a_client_that_was_replaced_suspends_nothing_when_its_session_would_have_ended() -> (
    None
):
    lifeline, partitions, failed = watching(5.0)
    lifeline.end()
    await asyncio.sleep(10)
    assert lane_of(partitions, A).state == "open"
    assert not partitions.is_alone
    assert (lifeline.over_since, failed) == (None, [])


@in_virtual_time
async def test_a_client_that_is_replaced_while_its_session_is_over_leaves_no_timer() -> None:
    lifeline, partitions, _ = watching(0.0)
    assert lane_of(partitions, A).state == "suspended"
    lifeline.end()
    lane_of(partitions, A).change("retain")
    await asyncio.sleep(60)
    assert lane_of(partitions, A).state == "open"
    assert lifeline.over_since is None


@in_virtual_time
async def test_how_long_a_session_has_been_over_is_counted_from_its_end() -> None:
    lifeline, _, _ = watching(-5.0)
    assert "the session has been over for 5 s" in str(lifeline.not_ready(now()))
    lifeline.end()
