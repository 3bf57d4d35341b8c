"""Spark's driver is killed under running batches: each runs again under its id, and the service
stays up meanwhile.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.faults.driver import Life, Load, Parcel, until
from tests.faults.history import Event, Partition
from tests.faults.letters import Stored
from tests.faults.observer import read_records
from tests.faults.probes import Probes
from tests.faults.processes import descendants, driver_of, kill
from tests.faults.spark_stage import (
    WAIT_S,
    Settings,
    Tasks,
    all_is_committed,
    calls,
    create,
    ended,
    gone,
    letters_of,
    member,
    produce,
)
from tests.faults.test_spark_kill import Places, in_parquet

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

KILLS = [1, pytest.param(3, marks=pytest.mark.long_faults)]
PER_SECOND = 20
# Less than a driver takes to start, on any machine; on a quiet one it is 0.1 s.
MOST_LAG_S = 3.0


@dataclass
class Story:
    """What one service has lived through.

    Attributes:
        probes: What its probes said all the while.
        kills: How often the driver is killed from outside.
        killed: The calls under which the driver was killed from outside.
        deaths: Those whose function has killed it.
        last: The call that came after them.
        letters: The dead letters.
        good: partition and offset of every record but the one that kills.
        rows: partition and offset of every row in the sink.
    """

    probes: Probes
    kills: int
    killed: list[Event] = field(default_factory=list)
    calls: list[Event] = field(default_factory=list)
    deaths: list[Event] = field(default_factory=list)
    last: Event | None = None
    letters: list[Stored] = field(default_factory=list)
    good: Places = field(default_factory=Counter)
    rows: Places = field(default_factory=Counter)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KILLS)
async def story(
    kafka: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Story:
    """Under a steady load the driver is killed some times; then comes a record whose function kills
    it.
    """
    kills: int = request.param
    run, folder = f"{uuid4().hex[:8]}-", tmp_path_factory.mktemp("driver")
    partitions = await create(kafka, f"{run}clicks", 2)
    tasks, life = Tasks(folder), member(kafka, folder, run, {"clicks": Settings()}).start()
    told = Story(Probes(life), kills)
    try:
        await life.ready(WAIT_S)
        async with told.probes.watching():
            async with Load(kafka, partitions, hold) as load, load.flowing(PER_SECOND):
                for _ in range(kills):
                    told.killed.append(await killed_under_a_batch(life, tasks, told))
            await all_is_committed(kafka, *partitions)
            before = len(calls(life, "clicks"))
            await produce(kafka, [(partitions[0], "die")])
            await all_is_committed(kafka, *partitions)
            (work,) = await produce(kafka, [(partitions[0], "work")])
            await all_is_committed(kafka, *partitions)
    finally:
        life.end()
    told.calls = calls(life, "clicks")
    *told.deaths, told.last = told.calls[before:]
    told.letters = list(
        (await read_records(kafka, letters_of(f"{run}clicks")))[
            letters_of(f"{run}clicks")[0]
        ].values()
    )
    told.good = Counter((number, offset) for (_, number), offset in [*load.sent, work])
    told.rows = in_parquet(folder / "rows")
    return told


def hold(id: str, number: int, tp: Partition) -> Parcel:
    """A record whose task goes on when it is let."""
    return Parcel(b"hold")


async def killed_under_a_batch(life: Life, tasks: Tasks, told: Story) -> Event:
    """Kill the driver under a batch that is none of those before, and wait until it has run
    again.
    """
    tasks.hold()
    call = await tasks.held(life, "clicks", {event.id for event in told.killed})
    below = descendants(life.pid)
    assert any(one.is_python_worker for one in below)
    killed_at = time.time()
    kill(driver_of(life.pid))
    await until(lambda: told.probes.first(503, killed_at), WAIT_S, "it is not ready", life.tail)
    await until(
        lambda: told.probes.first(200, told.probes.first(503, killed_at)),
        WAIT_S,
        "it is ready",
        life.tail,
    )
    await gone(below)
    assert call.id not in {event.id for event in calls(life, "clicks", "end")}, (
        "the batch was over before the kill"
    )
    tasks.let_go()
    await ended(life, "clicks", call.id)
    return call


def test_every_record_is_once_in_a_sink_that_goes_by_ranges(story: Story) -> None:
    assert len({event.id for event in story.killed}) == story.kills
    assert len(story.good) > 5 * PER_SECOND * story.kills
    assert {place: times for place, times in story.rows.items() if times != 1} == {}
    assert story.rows == story.good


def test_a_batch_under_which_the_driver_was_killed_runs_once_more_under_its_id(
    story: Story,
) -> None:
    """Row I1 of the faults."""
    for killed in story.killed:
        assert [event.attempt for event in story.calls if event.id == killed.id] == [1, 2]


def test_the_loop_is_not_held_up_while_a_driver_is_lost_and_started_again(story: Story) -> None:
    assert max(look.lag_s for look in story.probes.looks) < MOST_LAG_S


def test_the_service_is_not_ready_without_a_driver_and_alive_all_the_while(story: Story) -> None:
    looks = story.probes.looks
    changes = [after.ready for before, after in pairwise(looks) if after.ready != before.ready]
    assert changes.count(503) >= story.kills + len(story.deaths)
    assert looks[-1].ready == 200
    assert {look.live for look in looks} == {200}


def test_a_function_that_kills_its_driver_is_stopped_after_two_and_the_next_batch_works(
    story: Story,
) -> None:
    assert [event.attempt for event in story.deaths] == [1, 2]
    assert len({event.id for event in story.deaths}) == 1
    (letter,) = story.letters
    assert letter.value == b"die"
    assert "ended under the job" in dict(letter.headers)["dead-letter-reason"].decode()
    assert story.last is not None
    assert story.last.attempt == 1
