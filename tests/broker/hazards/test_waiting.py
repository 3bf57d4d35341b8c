"""H20: an answer that does not come is waited for as long as a session; who refuses is asked
without a pause.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.errors import OutcomeUnknownError
from reactive_kafka.events import SessionOver, SessionUp
from tests.broker.hazards.applications import running
from tests.broker.hazards.faults import Rig, until
from tests.broker.hazards.naive import consuming
from tests.broker.hazards.test_commit_turns import connection
from tests.broker.members import fill, joined

# Of the rig.
SESSION_S = 2.0
WATCHED_S = 3.0


async def test_h20_naive_an_unanswered_request_is_waited_for_beyond_the_session(
    rig: Rig, group: str
) -> None:
    topic = await rig.create_topic(1)
    async with consuming(
        rig.bootstrap_servers, topic, group_id=group, **rig.properties
    ) as consumer:
        await until(consumer.assignment, "it has its partition")
        rig.proxy.hold()
        connections = rig.proxy.accepted
        await asyncio.sleep(SESSION_S + WATCHED_S)
        assert rig.proxy.accepted == connections, "it tries no other connection"
        assert consumer.assignment(), "it takes itself for the owner"
        rig.proxy.release()


async def test_h20_a_connection_that_says_nothing_is_given_up_within_the_session(
    rig: Rig, group: str
) -> None:
    """Row B9 of the faults."""
    topic = await rig.create_topic(1)
    async with joined(rig, topic, group) as member:
        await member.until_assigned(1)
        ends_at = member.consumer.session_ends_at()
        assert ends_at > time.monotonic() + SESSION_S / 2
        connections = rig.proxy.accepted
        coordinator: Any = member.consumer.owned.coordinator  # type: ignore[attr-defined]
        rig.proxy.hold()
        held_at = time.monotonic()
        await until(lambda: coordinator.node is None, "it gives the coordinator up")
        assert time.monotonic() - held_at < SESSION_S
        await until(lambda: rig.proxy.accepted > connections, "it connects anew")
        assert member.consumer.session_ends_at() < held_at + SESSION_S + 0.01, (
            "nothing has kept it up"
        )
        rig.proxy.release()
        await until(
            lambda: member.consumer.session_ends_at() > time.monotonic() + SESSION_S / 2,
            "it is heard again",
        )


async def test_h20_a_dead_connection_is_given_up_though_its_callers_give_up_sooner(
    rig: Rig, group: str
) -> None:
    """Row B9 of the faults. A static assignment sends no heartbeats, only commits."""
    partition = TopicPartition(await rig.create_topic(1), 0)
    # A third of it is longer than the deadline of a commit.
    properties = {"session_timeout_ms": 18_000}
    async with joined(rig, None, group, partitions=[partition], properties=properties) as member:
        await member.until_assigned(1)
        await member.consumer.commit({partition: Committed(1)}, member.generation)
        used = connection(member)
        rig.proxy.hold()
        with pytest.raises(OutcomeUnknownError, match="no answer within 5 s"):
            await member.consumer.commit({partition: Committed(2)}, member.generation)
        assert used.is_open
        await until(lambda: not used.is_open, "the connection is given up", 5)
        rig.proxy.release()


async def test_h20_a_slow_answer_is_no_silence(rig: Rig, group: str) -> None:
    """Row B8 of the faults."""
    topic = await rig.create_topic(1)
    await fill(rig, topic, {0: ["x" * 1_000] * 200})
    async with running(rig.bootstrap_servers, topic, group) as diary:
        await diary.until_assigned(1)
        await until(lambda: len(diary.handled) == 200, "all are read")
        connections = rig.proxy.accepted
        # 60 KB take longer than the silence in which a fetch is given up.
        rig.proxy.answers.bytes_per_s = 10_000
        before = rig.answers.passed_bytes
        await fill(rig, topic, {0: ["x" * 1_000] * 60})
        await until(lambda: len(diary.handled) == 260, "all of it came through")
        assert rig.answers.passed_bytes - before > 60_000
        # the producer of fill has some of its own
        assert rig.proxy.accepted - connections <= 3
        assert diary.of(SessionOver) == []


async def refused(rig: Rig) -> float:
    """How often a second a client connects that is refused."""
    rig.proxy.is_refusing = True
    rig.proxy.reset_all()
    before = rig.proxy.accepted
    await asyncio.sleep(WATCHED_S)
    return (rig.proxy.accepted - before) / WATCHED_S


async def test_h20_naive_a_node_that_refuses_is_asked_again_and_again(rig: Rig, group: str) -> None:
    topic = await rig.create_topic(1)
    async with consuming(
        rig.bootstrap_servers, topic, group_id=group, **rig.properties
    ) as consumer:
        await until(consumer.assignment, "it has its partition")
        assert await refused(rig) > 8
        rig.proxy.is_refusing = False


async def test_h20_a_node_that_refuses_is_asked_with_growing_pauses(rig: Rig, group: str) -> None:
    """Row B6 of the faults."""
    topic = await rig.create_topic(1)
    async with joined(rig, topic, group, properties={"session_timeout_ms": 30_000}) as member:
        await member.until_assigned(1)
        assert 0 < await refused(rig) < 4
        rig.proxy.is_refusing = False
        back_at = time.monotonic()
        ended_at = member.consumer.session_ends_at()
        await until(lambda: member.consumer.session_ends_at() > ended_at, "it is heard again")
        assert time.monotonic() - back_at < 6


async def test_h20_a_member_that_is_cut_off_starts_no_record_when_its_session_is_over(
    rig: Rig, group: str
) -> None:
    """Rows B1 and C4 of the faults."""
    topic, began = await rig.create_topic(1), list[float]()
    await fill(rig, topic, {0: [""] * 500})

    async def handler(order: Any) -> None:
        began.append(time.monotonic())
        await asyncio.sleep(0.02)

    async with running(rig.bootstrap_servers, topic, group, handler=handler) as diary:
        await until(lambda: len(began) > 5, "it works")
        rig.proxy.hold()
        cut_at = time.monotonic()
        await until(lambda: diary.of(SessionOver), "it knows that it is alone")
        await asyncio.sleep(WATCHED_S)
        assert began[-1] < cut_at + SESSION_S + 0.2
        assert len(began) < 400, "there was more to be worked through"
        assert any("no record is started" in why for why in diary.facts.not_ready)
        rig.proxy.release()
        stopped_after = len(began)
        await until(lambda: len(began) > stopped_after, "it goes on")
        await until(lambda: diary.of(SessionUp), "and says so")
