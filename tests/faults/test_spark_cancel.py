"""Jobs that a service cancels are over, as their tasks' beats tell, before anything else becomes of
their records.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from dataclasses import dataclass
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.faults.driver import until
from tests.faults.history import Event, Partition
from tests.faults.letters import Stored
from tests.faults.observer import read_records
from tests.faults.processes import Process, descendants
from tests.faults.spark_stage import (
    WAIT_S,
    Call,
    Settings,
    Stranger,
    Tasks,
    all_is_committed,
    call_of,
    calls,
    create,
    gone,
    letters_of,
    member,
    produce,
)
from tests.faults.spark_tasks import NO_JOBS
from tests.faults.test_spark_kill import Places, in_parquet

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TIMEOUT_S, MAX_POLL_S, SLEEP_S = 8, 6, 10
DRAIN_S = 8
SHORT = Settings(spark=f'timeout = "{TIMEOUT_S}s"')
LONG = Settings(
    more=f'"max.poll.interval.ms" = {MAX_POLL_S}000\nrevoke_grace = "1s"\ndrain_timeout = "{DRAIN_S}s"',
    # One of each partition.
    spark="batch_max_records = 2",
)


@dataclass(frozen=True)
class Story:
    """What one service with the channels "short" and "long" has lived through.

    Attributes:
        events: Its history.
        slow: A call that takes longer than a member may not poll.
        late, moved, stopped: Calls that were cancelled by a timeout, by a rebalance, and by a stop.
        again: The call after the rebalance.
        joined, told: When the other member came, and when the service was told to stop.
        stranger: That member of the group of "long".
        kept: The partition that the service kept.
        below: The processes below it when it was told to stop.
        beats: When tasks were alive.
        letters: Dead letters of "short".
        rows: Rows in the sink, of "long".
    """

    events: list[Event]
    slow: Event
    late: Event
    moved: Event
    again: Event
    stopped: Event
    joined: float
    told: float
    stranger: Stranger
    kept: Partition
    below: list[Process]
    beats: dict[Call, list[float]]
    letters: list[Stored]
    rows: Places

    def beats_of(self, call: Event) -> list[float]:
        """When tasks of a call were alive, ascending."""
        return self.beats[call_of(call)]

    def about(self, kind: str, topic: str = "long") -> list[Event]:
        """What was assigned or revoked of a channel. An assignment may add no partition."""
        return [
            one
            for one in self.events
            if one.kind == kind and one.partitions and one.partitions[0][0].endswith(topic)
        ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def story(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A slow job beside one that runs into its timeout; then a second member comes; then the
    service is stopped.
    """
    run, folder = f"{uuid4().hex[:8]}-", tmp_path_factory.mktemp("cancel")
    (short,), long = await create(kafka, f"{run}short", 1), await create(kafka, f"{run}long", 2)
    tasks, stranger = Tasks(folder), Stranger()
    life = member(kafka, folder, run, {"short": SHORT, "long": LONG}).start()
    try:
        await life.ready(WAIT_S)
        await produce(kafka, [(tp, f"sleep {SLEEP_S}") for tp in long])
        await tasks.held(life, "long")
        await produce(kafka, [(short, "hold")])
        late = await tasks.held(life, "short")
        await all_is_committed(kafka, *long)
        await all_is_committed(kafka, short)
        slow = calls(life, "long")[0]
        await produce(kafka, [(short, "work")])
        await all_is_committed(kafka, short)

        await produce(kafka, [(tp, "hold") for tp in long])
        moved = await tasks.held(life, "long")
        joined = time.time()
        async with stranger.joining(kafka, long[0][0]):
            await until(lambda: stranger.has(1), WAIT_S, "a partition moves", life.tail)
            (kept,) = set(long) - stranger.assigned[-1][1]
            tasks.let_go()
            await all_is_committed(kafka, kept)
            again = calls(life, "long")[-1]

            tasks.hold()
            await produce(kafka, [(kept, "hold")] * 2)
            stopped = await tasks.held(life, "long")
            below = descendants(life.pid)
            told = life.send(signal.SIGTERM)
            assert await life.exited(WAIT_S) == 0, life.tail()
            await gone(below)
            await until(lambda: stranger.has(2), WAIT_S, "the other partition moves")
    finally:
        life.end()
    ranges = {one for call in calls(life, "long") for one in call.id.split("-")}
    letters = (await read_records(kafka, letters_of(short[0])))[letters_of(short[0])[0]]
    return Story(
        events=life.events,
        slow=slow,
        late=late,
        moved=moved,
        again=again,
        stopped=stopped,
        joined=joined,
        told=told,
        stranger=stranger,
        kept=kept,
        below=below,
        beats=tasks.beats(),
        letters=list(letters.values()),
        rows=sum((in_parquet(folder / "rows" / f"range_id={one}") for one in ranges), Counter()),
    )


def test_a_job_longer_than_max_poll_interval_ms_causes_no_rebalance_and_runs_once(
    story: Story,
) -> None:
    beats = story.beats_of(story.slow)
    assert beats[-1] - beats[0] > MAX_POLL_S
    assert [one.kind for one in story.events if one.id == story.slow.id] == ["begin", "end"]
    assert story.rows
    assert {at: times for at, times in story.rows.items() if times != 1} == {}
    assert [one.t for one in story.about("revoked") if one.t < story.joined] == []
    assert len([one for one in story.about("assigned") if one.t < story.joined]) == 1


def test_the_tasks_of_a_job_that_times_out_are_over_before_its_record_is_nacked(
    story: Story,
) -> None:
    """Row I2 of the faults."""
    (letter,) = story.letters
    # Which nobody let go.
    assert letter.value == b"hold"
    assert (
        f"cancelled, not done after {TIMEOUT_S} s"
        in dict(letter.headers)["dead-letter-reason"].decode()
    )
    assert story.beats_of(story.late)[-1] < letter.t
    work = [one for one in story.events if one.kind == "begin" and one.tp[0] == "short"][-1]
    assert (work.tp[1], work.outcome) == (story.late.tp[1] + 1, NO_JOBS)


def test_the_tasks_of_a_job_are_over_before_its_partitions_are_let_go(story: Story) -> None:
    revoked = story.about("revoked")[0]
    came, _ = next(one for one in story.stranger.assigned if one[1])
    last = story.beats_of(story.moved)[-1]
    assert story.joined < last, "it was not cut off while it ran"
    assert last < revoked.t < came
    assert revoked.outcome == NO_JOBS
    assert story.again.outcome == NO_JOBS
    assert story.again.id in story.moved.id.split("-"), "what was kept runs again under its id"


def test_the_tasks_of_a_job_are_over_before_a_service_that_is_stopped_leaves_the_group(
    story: Story,
) -> None:
    """Row I4 of the faults."""
    revoked = story.about("revoked")[-1]
    came, _ = story.stranger.assigned[-1]
    last = story.beats_of(story.stopped)[-1]
    assert story.told < last, "it was not cut off while it ran"
    assert last < revoked.t < came
    assert revoked.outcome == NO_JOBS
    assert story.events[-1].kind == "stop"
    assert story.events[-1].t < story.told + DRAIN_S + 10
