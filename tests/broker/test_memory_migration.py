"""Groups of the in-memory broker that move from one protocol to the other, member by member."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.memory.broker import AssignmentKind
from reactive_kafka.errors import NotOwnerError, OutcomeUnknownError
from reactive_kafka.testing import FakeClock, MemoryBroker, run_in_virtual_time
from tests.broker.contract_cooperative import changes, held, soon
from tests.broker.members import Member, inspecting, joined
from tests.broker.test_memory import MemoryCluster
from tests.broker.test_memory_cooperative import Group, change_and_check

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def clusters(partitions: int) -> tuple[MemoryCluster, MemoryCluster, MemoryCluster]:
    """One in-memory broker, for eager, for cooperative, and for members of the consumer protocol."""
    broker = MemoryBroker()
    broker.create_topic("t", partitions)
    kinds: tuple[AssignmentKind, ...] = ("eager", "cooperative", "consumer")
    eager, cooperative, consumer = (MemoryCluster(broker) for _ in kinds)
    for cluster, kind in zip((eager, cooperative, consumer), kinds, strict=True):
        cluster.connector = broker.connector(assignment=kind)
    return eager, cooperative, consumer


async def protocol_of(cluster: MemoryCluster) -> str | None:
    async with inspecting(cluster) as inspector:
        return next(one.kind for one in await inspector.list_groups() if one.group_id == "g")


def test_an_eager_member_stays_by_its_id_and_joins_again_when_a_consumer_comes_and_when_it_goes() -> (
    None
):
    async def main(_: FakeClock) -> None:
        eager, _, consumer = clusters(4)
        async with joined(eager, "t", "g", "old") as old:
            everything = await old.until_assigned(4)
            async with joined(consumer, "t", "g", "new") as new:
                await new.until_assigned(2)
                await old.until_assigned(2)
                assert old.owned | new.owned == everything
                assert await protocol_of(eager) == "consumer"
                assert eager.broker.members("g") == {"old-1": old.owned, "new-2": new.owned}
                assert old.generation == new.generation == eager.broker.generation("g")
                await old.consumer.commit(dict.fromkeys(old.owned, Committed(1)), old.generation)
                epoch = new.generation
            await old.until_assigned(4)
            assert await protocol_of(eager) == "classic"
            assert eager.broker.members("g") == {"old-1": everything}
            assert old.generation == epoch + 1
        await eager.broker.close()

    run_in_virtual_time(main)


def test_a_cooperative_member_keeps_what_stays_its_own_when_its_group_is_converted() -> None:
    async def main(_: FakeClock) -> None:
        _, cooperative, consumer = clusters(4)
        async with joined(cooperative, "t", "g", "old") as old:
            everything = await old.until_assigned(4)
            begun, done = held(old)
            async with joined(consumer, "t", "g", "new") as new:
                await soon(begun)
                await new.until(lambda: new.generation > 0)
                # What it is about to give up is its own until then, and it commits it.
                assert not new.owned
                going = changes(old)[-1][1]
                await old.consumer.commit(dict.fromkeys(going, Committed(1)), old.generation)
                done.set()
                moved = await new.until_assigned(2)
                await old.until(lambda: len(old.owned) == 2)
                assert moved == going
                assert old.owned == everything - moved
                revoked = [partitions for kind, partitions in changes(old) if kind == "revoked"]
                assert revoked == [moved]
        await cooperative.broker.close()

    run_in_virtual_time(main)


def test_what_a_cooperative_member_is_giving_up_in_a_classic_rebalance_stays_its_own_in_a_conversion() -> (
    None
):
    async def main(_: FakeClock) -> None:
        _, cooperative, consumer = clusters(4)
        async with joined(cooperative, "t", "g", "one") as one:
            everything = await one.until_assigned(4)
            begun, done = held(one)
            async with joined(cooperative, "t", "g", "two") as two:
                await soon(begun)
                async with joined(consumer, "t", "g", "new") as new:
                    await new.until(lambda: new.generation > 0)
                    await asyncio.sleep(10)
                    assert one.owned == everything
                    assert not two.owned | new.owned
                    done.set()
                    await new.until(lambda: bool(new.owned))
                    await two.until(lambda: bool(two.owned))
                    await one.until(lambda: len(one.owned) < 3)
                    assert one.owned | two.owned | new.owned == everything
                    assert len(one.owned) + len(two.owned) + len(new.owned) == 4
        await cooperative.broker.close()

    run_in_virtual_time(main)


@pytest.mark.parametrize("is_eager", [True, False])
def test_a_classic_member_that_is_cut_off_from_a_consumer_group_is_out_when_its_session_ends(
    is_eager: bool,
) -> None:
    async def main(clock: FakeClock) -> None:
        eager, cooperative, consumer = clusters(2)
        classic = eager if is_eager else cooperative
        classic.properties = {"session_timeout_ms": 10_000}
        async with (
            joined(consumer, "t", "g", "new") as new,
            joined(classic, "t", "g", "old") as old,
        ):
            await new.until_assigned(1)
            [theirs] = await old.until_assigned(1)
            cut_at = clock.monotonic()
            classic.broker.cut_off("g", "old-2")
            await new.until_assigned(2)
            assert 10 <= clock.monotonic() - cut_at < 12
            with pytest.raises(OutcomeUnknownError):
                await old.consumer.commit({theirs: Committed(1)}, old.generation)
            classic.broker.heal("g")
            await old.until(lambda: not old.owned)
            await old.until_assigned(1)
            await new.until_assigned(1)
            assert not old.owned & new.owned
        assert classic.broker.commits("g") == ()
        await classic.broker.close()

    run_in_virtual_time(main)


def test_a_classic_member_joins_again_after_an_outage_in_which_the_epoch_ended() -> None:
    async def main(_: FakeClock) -> None:
        eager, _, consumer = clusters(2)
        eager.properties = {"rebalance_timeout_ms": 5_000}
        async with (
            joined(consumer, "t", "g", "new") as new,
            joined(eager, "t", "g", "old") as old,
        ):
            await new.until_assigned(1)
            await old.until_assigned(1)
            begun, done = held(old)
            eager.broker.rebalance("g")
            await soon(begun)
            eager.broker.down = True
            done.set()
            await asyncio.sleep(100)
            assert not old.owned
            eager.broker.down = False
            await old.until_assigned(1)
            assert list(eager.broker.members("g")) == ["new-1", "old-2"]
        await eager.broker.close()

    run_in_virtual_time(main)


def test_a_classic_member_that_is_behind_when_its_group_becomes_classic_loses_its_partitions() -> (
    None
):
    async def main(_: FakeClock) -> None:
        _, cooperative, consumer = clusters(2)
        async with (
            joined(consumer, "t", "g", "new") as new,
            joined(cooperative, "t", "g", "old") as old,
        ):
            await new.until_assigned(1)
            owned = await old.until_assigned(1)
            generation = old.generation
            told: list[bool] = []

            async def note() -> None:
                told.append(old.consumer.is_member())

            old.while_revoked = note
            # It hears of the next epoch with its heartbeat, and the group is classic before.
            cooperative.broker.rebalance("g")
            await new.consumer.stop()
            assert not old.consumer.is_member()
            with pytest.raises(NotOwnerError):
                await old.consumer.commit(dict.fromkeys(owned, Committed(1)), generation)
            await old.until_assigned(2)
            assert told == [False]
            assert ("revoked", owned) in changes(old)
            assert list(cooperative.broker.members("g")) == ["old-2"]
            assert cooperative.broker.committed("g") == {}
        await cooperative.broker.close()

    run_in_virtual_time(main)


def test_a_classic_member_in_the_epoch_of_the_group_loses_nothing_when_the_group_becomes_classic() -> (
    None
):
    async def main(_: FakeClock) -> None:
        _, cooperative, consumer = clusters(2)
        async with (
            joined(consumer, "t", "g", "new") as new,
            joined(cooperative, "t", "g", "old") as old,
        ):
            await new.until_assigned(1)
            owned = await old.until_assigned(1)
            generation = old.generation
            assert generation == new.generation
            await new.consumer.stop()
            assert old.consumer.is_member()
            await old.consumer.commit(dict.fromkeys(owned, Committed(1)), generation)
            await old.until_assigned(2)
            assert "revoked" not in {kind for kind, _ in changes(old)}
        await cooperative.broker.close()

    run_in_virtual_time(main)


def test_a_commit_of_a_classic_member_for_what_has_moved_to_a_consumer_is_refused() -> None:
    async def main(_: FakeClock) -> None:
        eager, _, consumer = clusters(2)
        async with joined(eager, "t", "g", "old") as old:
            await old.until_assigned(2)
            crossing = eager.broker.hold("commit")
            commit = asyncio.ensure_future(
                old.consumer.commit(dict.fromkeys((P0, P1), Committed(1)), old.generation)
            )
            await crossing.arrived()
            async with joined(consumer, "t", "g", "new") as new:
                await new.until_assigned(1)
                crossing.release()
                with pytest.raises(NotOwnerError, match="is in generation"):
                    await commit
        assert eager.broker.commits("g") == ()
        await eager.broker.close()

    run_in_virtual_time(main)


def test_a_classic_member_that_joins_again_too_late_is_out_and_joins_anew() -> None:
    async def main(clock: FakeClock) -> None:
        eager, _, consumer = clusters(2)
        eager.properties = {"rebalance_timeout_ms": 5_000}
        async with joined(eager, "t", "g", "old") as old:
            await old.until_assigned(2)
            begun, done = held(old)
            async with joined(consumer, "t", "g", "new") as new:
                await soon(begun)
                began_at = clock.monotonic()
                assert await new.until_assigned(2) == {P0, P1}
                assert 4 < clock.monotonic() - began_at < 7
                assert not old.consumer.is_member()
                done.set()
                await old.until_assigned(1)
                await new.until_assigned(1)
                assert not old.owned & new.owned
        await eager.broker.close()

    run_in_virtual_time(main)


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_consumer_whose_group_became_classic_without_it_joins_again_and_converts_it(
    is_silent: bool,
) -> None:
    async def main(_: FakeClock) -> None:
        eager, _, consumer = clusters(2)
        async with (
            joined(consumer, "t", "g", "new") as new,
            joined(eager, "t", "g", "old") as old,
        ):
            await new.until_assigned(1)
            await old.until_assigned(1)
            eager.broker.expire("g", "new-1", notice_after_s=20.0 if is_silent else 0.0)
            if is_silent:
                await old.until_assigned(2)
                assert await protocol_of(eager) == "classic"
            await new.until(lambda: len(changes(new)) > 3)
            await poll_until_assigned(new, 1)
            await old.until_assigned(1)
            assert not new.owned & old.owned
            assert await protocol_of(eager) == "consumer"
        await eager.broker.close()

    run_in_virtual_time(main)


async def poll_until_assigned(member: Member, count: int) -> None:
    """Poll until so many partitions are assigned; a poll raises what the group says."""
    while len(member.owned) != count:
        await member.consumer.poll({}, 0.1)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "join",
                "join eager",
                "join cooperative",
                "leave",
                "leave",
                "crash",
                "grow",
                "rebalance",
            ]
        ),
        st.integers(0, 9),
        st.sampled_from([0.0, 0.0, 0.1, 1.0, 5.0]),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_whatever_happens_to_a_mixed_group_no_partition_is_owned_twice_and_each_gets_an_owner(
    steps: list[tuple[str, int, float]],
) -> None:
    run_in_virtual_time(lambda _: change_and_check(Group("consumer", 150.0, is_mixed=True), steps))
