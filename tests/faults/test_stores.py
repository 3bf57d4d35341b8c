"""Exactly once, and states that fit their positions, while members and stores fail; judged from
outside.

A record that came again would be a second row, for nothing in the tables refuses one. A state that
did not fit its position would be a wrong sum. ``-s`` prints what each run went through.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from reactive_kafka.errors import CheckpointRefusedError
from tests.faults.checker import Disruption, Place, duplicates
from tests.faults.driver import Life, Member, until
from tests.faults.probes import Probes
from tests.faults.stage import not_sooner_than
from tests.faults.store_stage import (
    Kept,
    Stage,
    begun_again,
    in_postgres,
    in_redis,
    make_table,
    staged,
)
from tests.harness.postgres import Postgres, running_postgres
from tests.harness.redis import Redis, running_redis

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.redis]

KILLS_EACH = [3, pytest.param(10, marks=pytest.mark.long_faults)]
AWAY_S = 3.0


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A server that these tests may end."""
    with running_postgres() as server:
        make_table(server.dsn)
        yield server


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    """A server that these tests may end."""
    with running_redis(durable=True) as server:
        yield server


async def killed(stage: Stage, one: Member, times: int, chance: random.Random) -> None:
    """Start a member, kill it at a random moment, so many times; the next life stays.

    Two of three come when it is at work; the others whatever it does just then, starting and
    joining too.
    """
    for number in range(times):
        life = one.start()
        if number % 3:
            await stage.busy(life)
            await asyncio.sleep(chance.uniform(0, 0.4))
        else:
            await asyncio.sleep(chance.uniform(0.3, 2.5))
        await kill(stage, life)
    await stage.busy(one.start())


async def kill(stage: Stage, life: Life) -> None:
    killed_at = life.send(signal.SIGKILL)
    assert await life.exited(5) == -signal.SIGKILL
    stage.cuts.append(Disruption(life.name, killed_at, killed_at))


@pytest.mark.parametrize("kills_each", KILLS_EACH)
async def test_kills_leave_every_row_once_and_every_sum_right(
    kafka: str, postgres: Postgres, redis: Redis, tmp_path: Path, kills_each: int
) -> None:
    """Rows C3, G7 of the faults."""
    seed = time.time_ns() % 1_000_000
    channels = {
        "postgres": in_postgres(postgres.dsn),
        "redis": in_redis(redis.url),
        "sqlite": Kept(f"sqlite:///{tmp_path / 'offsets.db'}"),
        "files": Kept(f"file://{tmp_path / 'offsets'}"),
    }
    async with staged(kafka, tmp_path, channels) as stage:
        members = [stage.member("left"), stage.member("right")]
        async with stage.load.flowing(per_second=130), asyncio.TaskGroup() as kills:
            for number, one in enumerate(members):
                kills.create_task(killed(stage, one, kills_each, random.Random(seed + number)))
        await stage.finish()
        wrong = await stage.wrong()
        lives = [life for one in members for life in one.lives if life.exit_code == -signal.SIGKILL]
        cut = {
            name: [begun_again(life, stage.events, stage.topic(name)) for life in lives]
            for name in channels
        }
        sent = len(stage.load.sent)

    hit = {name: sum(bool(records) for records in found) for name, found in cut.items()}
    again = {name: sum(map(len, found)) for name, found in cut.items()}
    told = f"seed {seed}: {sent} records, {len(lives)} kills; of these hit work: {hit}; records begun again: {again}"
    print(f"\n{told}")
    assert wrong == {}, told
    assert len(lives) == 2 * kills_each, told
    assert min(hit.values()) >= kills_each // 2, told
    assert sent > 1000, told


async def test_stores_that_are_restarted_under_load_cost_readiness_and_no_record(
    kafka: str, postgres: Postgres, redis: Redis, tmp_path: Path
) -> None:
    """Row G4 of the faults."""
    channels = {"postgres": in_postgres(postgres.dsn), "redis": in_redis(redis.url)}
    servers: Mapping[str, Postgres | Redis] = {"postgres": postgres, "redis": redis}
    async with staged(kafka, tmp_path, channels) as stage:
        lives = [stage.member(name).start() for name in ("left", "right")]
        for life in lives:
            await life.ready()
        probes = [Probes(life) for life in lives]
        async with probes[0].watching(), probes[1].watching(), stage.load.flowing(per_second=80):
            for name, server in servers.items():
                for life in lives:
                    await stage.busy(life)
                await restart(stage, name, server, lives)
        nacked = sum(
            [total(await life.metrics(), "reactive_kafka_records_nacked_total") for life in lives]
        )
        await stage.finish()
        wrong = await stage.wrong()

    assert wrong == {}
    assert nacked == 0
    for seen in probes:
        assert {look.live for look in seen.looks} == {200}
        assert {look.ready for look in seen.looks} == {200, 503}
    assert all(watch.failures for watch in stage.watches.values()), "a store was never away"


async def restart(stage: Stage, channel: str, server: Postgres | Redis, lives: list[Life]) -> None:
    """Take a channel's store away for a while; the other channels go on, and it does when the store
    is back.
    """
    began = time.time()
    await asyncio.to_thread(server.stop)
    for life in lives:
        body = await life.probe_shows("/health/ready", 503, 10)
        assert [check["name"] for check in body["checks"] if check["status"] == "DOWN"] == [channel]
    done = stage.done(channel)
    for other in stage.channels.keys() - {channel}:
        for life in lives:
            await stage.goes_on(other, life)
    await not_sooner_than(began + AWAY_S)
    # What was at work when the store went.
    assert stage.done(channel) - done < 20
    await asyncio.to_thread(server.start)
    for life in lives:
        await life.ready(20)
        await stage.goes_on(channel, life)
    stage.cuts += [Disruption(life.name, began, time.time()) for life in lives]


def total(metrics: str, name: str) -> float:
    """The sum of a metric over all its labels."""
    return sum(
        float(line.split()[-1]) for line in metrics.splitlines() if line.startswith(f"{name}{{")
    )


async def test_the_next_owner_goes_on_with_position_and_state_whatever_client_has_written_them(
    kafka: str, postgres: Postgres, tmp_path: Path
) -> None:
    one, other = in_postgres(postgres.dsn), in_postgres(postgres.dsn, "psycopg")
    channels = {"rows": one, "states": Kept(one.store)}
    async with staged(kafka, tmp_path, channels) as stage:
        left, right = (
            stage.member("left"),
            stage.member("right", stores=dict.fromkeys(channels, other.store)),
        )
        async with stage.load.flowing(per_second=80):
            await stage.busy(left.start())
            await stage.busy(right.start())
            await hand_over(stage, left, right)
            await stage.busy(left.start())
            await hand_over(stage, right, left)
        await stage.finish()
        wrong = await stage.wrong()
        handled = [(event.tp, event.process) for event in stage.events if event.kind == "end"]

    assert wrong == {}
    assert duplicates(stage.events) == 0
    owners = {
        tp: {process for at, process in handled if at == tp} for tp in {tp for tp, _ in handled}
    }
    assert all({"left.1", "right.1", "left.2"} <= found for found in owners.values()), owners


async def hand_over(stage: Stage, leaves: Member, stays: Member) -> None:
    """One stops, and the other one goes on with everything."""
    leaves.life.send(signal.SIGTERM)
    assert await leaves.life.exited(20) == 0, leaves.life.tail()
    for channel in stage.channels:
        await stage.goes_on(channel, stays.life)


async def test_a_frozen_member_that_wakes_up_is_refused_its_late_writes(
    kafka: str, postgres: Postgres, redis: Redis, tmp_path: Path
) -> None:
    """Rows C4, G6 of the faults."""
    channels = {
        "postgres": in_postgres(postgres.dsn),
        "redis": in_redis(redis.url),
        "states": Kept(in_postgres(postgres.dsn).store),
    }
    async with staged(kafka, tmp_path, channels) as stage:
        left, right = (
            stage.member(name, latency_s=(0.05, 0.1)).start() for name in ("left", "right")
        )
        transactional = {stage.topic(name) for name in ("postgres", "redis")}
        # As much as they can do, so that all are at work.
        async with stage.load.flowing(per_second=150):
            await stage.busy(left)
            await stage.busy(right)
            frozen_at = left.send(signal.SIGSTOP)
            held = unfinished_by(left)
            await until(
                lambda: held <= done_by(right), 20, "the other has done what it was at", right.tail
            )
            left.send(signal.SIGCONT)
            await until(
                lambda: not held & unfinished_by(left), 20, "its work has come to an end", left.tail
            )
            await stage.goes_on("states", left)
            # What waited in the one that woke up is begun there, too, until it learns that it owns
            # nothing.
            stage.cuts += [Disruption(life.name, frozen_at, time.time()) for life in (left, right)]
        await stage.finish()
        wrong = await stage.wrong()

    assert wrong == {}
    assert transactional <= {tp[0] for tp, _ in held}, "it was frozen between two records"
    assert transactional <= refused(left)


def done_by(life: Life) -> set[Place]:
    """Records whose work a process has done."""
    return {
        (event.tp, event.offset)
        for event in life.events
        if event.kind == "end" and event.outcome == "ok"
    }


def unfinished_by(life: Life) -> set[Place]:
    """Records that a process is in the middle of."""
    return {(event.tp, event.offset) for event in life.in_flight}


def refused(life: Life) -> set[str]:
    """Topics of records whose transaction was refused."""
    return {
        event.tp[0] for event in life.events if event.outcome == CheckpointRefusedError.__name__
    }
