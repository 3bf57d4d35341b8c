"""A replay that is interrupted, or overtaken by another one: every letter goes back once."""

from __future__ import annotations

import asyncio

import pytest

from reactive_kafka.dead_letters.letters import ReplayError, progress_group
from reactive_kafka.dead_letters.replay import (
    CONFIRM_S,
    MAX_RECORDS,
    Replayed,
    carry_out_replay,
    plan_replay,
)
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.testing import MemoryBroker
from tests.app.brokers import Hold
from tests.app.helpers import in_virtual_time, until
from tests.cli.inside import positions
from tests.dead_letters.letters_topic import (
    PROGRESS,
    broker_with_letters,
    cluster_of,
    values,
    write_letter,
)


@pytest.fixture
def broker() -> MemoryBroker:
    return broker_with_letters()


async def interrupted(broker: MemoryBroker, held: Hold) -> asyncio.Task[Replayed]:
    """A replay of eight letters, cancelled while the fourth is held up and all others of its piece
    are written.
    """
    for offset in range(10, 15):
        write_letter(broker, offset)
    wanted = await plan_replay(cluster_of(broker), "letters", None, None)
    replaying = asyncio.create_task(carry_out_replay(cluster_of(broker), wanted, {}))
    await held.arrived()
    await until(lambda: len(values(broker)) == 6)
    replaying.cancel()
    return replaying


@in_virtual_time
async def test_what_is_on_its_way_at_an_interruption_is_waited_for_and_does_not_go_twice(
    broker: MemoryBroker,
) -> None:
    broker.delay_next("send", 0.0, times=3, of="orders")
    held = broker.hold("send", of="orders")
    replaying = await interrupted(broker, held)
    await asyncio.sleep(CONFIRM_S / 2)
    assert not broker.committed(PROGRESS), "it waits"
    held.release()
    await asyncio.wait([replaying])
    assert replaying.cancelled()
    assert positions(broker, PROGRESS) == {0: 7}
    await carry_out_replay(
        cluster_of(broker), await plan_replay(cluster_of(broker), "letters", None, None), {}
    )
    assert sorted(values(broker), key=int) == [str(number) for number in range(7, 15)]


@in_virtual_time
async def test_an_interrupted_replay_does_not_wait_for_ever_and_remembers_what_was_confirmed(
    broker: MemoryBroker,
) -> None:
    broker.delay_next("send", 0.0, times=3, of="orders")
    replaying = await interrupted(broker, broker.hold("send", of="orders"))
    await until(replaying.done, within_s=3 * CONFIRM_S)
    assert replaying.cancelled()
    assert positions(broker, PROGRESS) == {0: 3}


@in_virtual_time
async def test_an_error_counts_what_the_broker_has_and_what_goes_twice(
    broker: MemoryBroker,
) -> None:
    for offset in range(10, 15):
        write_letter(broker, offset)
    broker.delay_next("send", 0.0, times=3, of="orders")
    broker.fail_next("send", FatalBrokerError("no right"), of="orders")
    wanted = await plan_replay(cluster_of(broker), "letters", None, None)
    written = Replayed()
    with pytest.raises(ReplayError) as raised:
        await carry_out_replay(cluster_of(broker), wanted, {}, written)
    assert str(raised.value) == (
        "letters-0 offset 3 could not be written: no right; 3 records were replayed before that, "
        "and the next replay continues from there; 3 records were written behind the stored "
        "position: the next replay may write them again"
    )
    assert len(values(broker)) == written.records == 6
    assert positions(broker, PROGRESS) == {0: 3}


async def test_a_replay_of_more_letters_than_are_read_at_a_time_is_not_taken_for_another_one(
    broker: MemoryBroker,
) -> None:
    for offset in range(10, 10 + 3 * MAX_RECORDS):
        write_letter(broker, offset)
    wanted = await plan_replay(cluster_of(broker), "letters", None, None)
    written = await carry_out_replay(cluster_of(broker), wanted, {})
    assert written.records == 3 * MAX_RECORDS + 3
    assert written.unpassed == 0
    assert positions(broker, PROGRESS) == {0: 3 * MAX_RECORDS + 2, 1: 1}


@in_virtual_time
async def test_of_the_letters_that_get_a_new_timestamp_only_those_that_were_written_count(
    broker: MemoryBroker,
) -> None:
    broker.delete_topic("orders")
    # The letters are older than a topic keeps records by default.
    broker.create_topic("orders", 2, {"cleanup.policy": "delete", "retention.ms": "604800000"})
    broker.delay_next("send", 0.0, of="orders")
    broker.fail_next("send", FatalBrokerError("no right"), of="orders")
    wanted = await plan_replay(cluster_of(broker), "letters", None, None)
    written = Replayed()
    with pytest.raises(ReplayError, match="could not be written: no right"):
        await carry_out_replay(cluster_of(broker), wanted, {}, written)
    assert (written.records, written.restamped) == (1, 1)


@in_virtual_time
async def test_what_was_written_is_counted_if_its_position_cannot_be_stored(
    broker: MemoryBroker,
) -> None:
    broker.fail_next("commit", FatalBrokerError("no right"))
    wanted = await plan_replay(cluster_of(broker), "letters", None, None)
    with pytest.raises(ReplayError, match=r"^no right; 2 records were written behind the stored"):
        await carry_out_replay(cluster_of(broker), wanted, {})
    assert values(broker) == ["7", "8"]


async def test_a_target_is_asked_once_which_timestamps_it_keeps(broker: MemoryBroker) -> None:
    await plan_replay(cluster_of(broker), "letters", None, None)
    assert broker.asked("topic_configs") == 1


@pytest.mark.parametrize(("mine", "theirs"), [(None, None), ("orders", None), (None, "orders")])
async def test_a_replay_that_another_one_overtook_at_the_question_writes_nothing(
    mine: str | None, theirs: str | None, broker: MemoryBroker
) -> None:
    cluster = cluster_of(broker)
    confirmed = await plan_replay(cluster, "letters", mine, 1)
    await carry_out_replay(cluster, await plan_replay(cluster, "letters", theirs, None), {})
    before = broker.committed(progress_group("letters", theirs))
    with pytest.raises(
        ReplayError,
        match="another replay has meanwhile reached 2 in letters-0: nothing was written",
    ):
        await carry_out_replay(cluster, confirmed, {})
    assert sorted(values(broker)) == ["7", "8", "9"]
    assert broker.committed(progress_group("letters", theirs)) == before


async def test_another_replay_to_the_same_topic_by_name_is_noticed_too(
    broker: MemoryBroker,
) -> None:
    cluster = cluster_of(broker)
    wanted, other = (
        await plan_replay(cluster, "letters", None, None),
        await plan_replay(cluster, "letters", "orders", None),
    )
    held = broker.hold("send", of="orders")
    replaying = asyncio.create_task(carry_out_replay(cluster, wanted, {}))
    await held.arrived()
    await carry_out_replay(cluster, other, {})
    held.release()
    await asyncio.wait([replaying])
    assert "another replay has meanwhile reached 2 in letters-0" in str(replaying.exception())
    assert positions(broker, PROGRESS) == {0: 2}, "what it wrote is remembered all the same"


def test_another_replay_at_the_same_time_is_noticed(broker: MemoryBroker) -> None:
    cluster = cluster_of(broker)

    async def both() -> BaseException | None:
        wanted = await plan_replay(cluster, "letters", None, None)
        held = broker.hold("send", of="orders")
        replaying = asyncio.create_task(carry_out_replay(cluster, wanted, {}))
        await held.arrived()
        await carry_out_replay(cluster, wanted, {})
        held.release()
        await asyncio.wait([replaying])
        return replaying.exception()

    assert "another replay has meanwhile reached 2 in letters-0" in str(asyncio.run(both()))


@in_virtual_time
async def test_a_replay_with_a_limit_passes_no_letter_behind_it(broker: MemoryBroker) -> None:
    for expected in (["7"], ["7", "8"], ["7", "8", "9"]):
        wanted = await plan_replay(cluster_of(broker), "letters", None, 1)
        await carry_out_replay(cluster_of(broker), wanted, {})
        assert values(broker) == expected
