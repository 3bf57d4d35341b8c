"""What a client promises that takes part in incremental rebalances (KIP-429)."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from reactive_kafka import Committed
from reactive_kafka.errors import NotOwnerError
from tests.broker.members import PATIENCE_S, Cluster, Event, Member, fill, joined, texts

LETTERS = list("abcdefgh")


def held(member: Member) -> tuple[asyncio.Event, asyncio.Event]:
    """Hold up the member's next revocation: set when it is there; to be set to let it go on."""
    begun, done = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        begun.set()
        await done.wait()

    member.while_revoked = hold
    return begun, done


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await event.wait()


class CooperativeContract:
    """Two members share a topic, and only what moves is revoked."""

    # Partitions that move are revoked in one generation and assigned in the next one (KIP-429). The
    # consumer protocol has one generation for both.
    generations_per_move: ClassVar[int] = 2
    # Whether the client takes a commit of a generation in which it was assigned nothing yet.
    counts_every_generation: ClassVar[bool] = True

    async def test_only_the_partitions_that_move_are_revoked_and_assigned(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(4)
        async with joined(cluster, topic, group, "one") as one:
            everything = await one.until_assigned(4)
            async with joined(cluster, topic, group, "two") as two:
                moved = await two.until_assigned(2)
                await one.until(lambda: one.generation == two.generation)
                assert changes(one) == [
                    ("assigned", everything),
                    ("revoking", moved),
                    ("revoked", moved),
                ]
                assert changes(two) == [("assigned", moved)]
                assert one.owned == everything - moved

    async def test_each_member_hears_of_each_generation(self, cluster: Cluster, group: str) -> None:
        topic = await cluster.create_topic(2)
        async with joined(cluster, topic, group, "one") as one:
            await one.until_assigned(2)
            alone = one.generation
            async with joined(cluster, topic, group, "two") as two:
                await two.until_assigned(1)
                await one.until(lambda: one.generation == two.generation)
                assert one.generation == alone + self.generations_per_move
                assert one.events[-1] == ("assigned", frozenset())

    async def test_what_stays_is_read_on_during_a_revocation(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        async with joined(cluster, topic, group, "one") as one:
            everything = await one.until_assigned(2)
            begun, done = held(one)
            async with joined(cluster, topic, group, "two") as two:
                await soon(begun)
                await fill(cluster, topic, {0: LETTERS, 1: LETTERS})
                budgets = dict.fromkeys(everything, 99)
                [(stays, records)] = (await one.take(8, budgets)).items()
                assert texts(records) == LETTERS
                assert await one.polls_nothing(budgets)
                assert two.owned == frozenset()
                done.set()
                [moved] = await two.until_assigned(1)
                assert {stays, moved} == everything
                assert texts((await two.take(8))[moved]) == LETTERS

    async def test_positions_and_pauses_of_what_stays_survive(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(4)
        await fill(cluster, topic, dict.fromkeys(range(4), LETTERS))
        async with joined(cluster, topic, group, "one") as one:
            everything = await one.until_assigned(4)
            one.consumer.start_at({partition: 3 + partition.partition for partition in everything})
            async with joined(cluster, topic, group, "two") as two:
                await two.until_assigned(2)
                await one.until(lambda: one.generation == two.generation)
                first, second = sorted(one.owned)
                assert one.consumer.positions() == {
                    one: 3 + one.partition for one in (first, second)
                }
                one.consumer.pause([first])
                await two.consumer.stop()
                await one.until_assigned(4)
                taken = await one.take(5 - second.partition + 2 * 8)
                assert first not in taken
                assert texts(taken[second]) == LETTERS[3 + second.partition :]
                one.consumer.resume([first])
                assert texts((await one.take(1))[first]) == LETTERS[3 + first.partition :]

    async def test_what_goes_and_what_stays_can_be_committed_during_the_revocation(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        async with joined(cluster, topic, group, "one") as one:
            everything = await one.until_assigned(2)
            first = one.generation
            begun, done = held(one)
            async with joined(cluster, topic, group, "two") as two:
                await soon(begun)
                await one.consumer.commit(dict.fromkeys(everything, Committed(5)), first)
                last = first + self.generations_per_move
                for generation in range(first + 1, last) if self.counts_every_generation else ():
                    await one.consumer.commit(dict.fromkeys(everything, Committed(6)), generation)
                await one.consumer.commit(dict.fromkeys(everything, Committed(6)), first)
                with pytest.raises(NotOwnerError):
                    await one.consumer.commit(dict.fromkeys(everything, Committed(7)), last)
                done.set()
                moved = await two.until_assigned(1)
                assert await two.consumer.committed(moved) == dict.fromkeys(moved, Committed(6))

    async def test_after_the_rebalance_what_stayed_can_be_committed_and_what_went_cannot(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        async with joined(cluster, topic, group, "one") as one:
            await one.until_assigned(2)
            first = one.generation
            async with joined(cluster, topic, group, "two") as two:
                moved = await two.until_assigned(1)
                await one.until(lambda: one.generation == two.generation)
                for generation in range(first, one.generation + 1):
                    await one.consumer.commit(
                        dict.fromkeys(one.owned, Committed(generation)), generation
                    )
                    with pytest.raises(NotOwnerError):
                        await one.consumer.commit(dict.fromkeys(moved, Committed(1)), generation)
                # Of a generation before it was the other's.
                with pytest.raises(NotOwnerError):
                    await two.consumer.commit(dict.fromkeys(moved, Committed(1)), first)
                await two.consumer.commit(dict.fromkeys(moved, Committed(2)), two.generation)

    async def test_a_partition_that_comes_back_is_not_the_one_that_went(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        async with joined(cluster, topic, group, "one") as one:
            await one.until_assigned(2)
            first = one.generation
            async with joined(cluster, topic, group, "two") as two:
                moved = await two.until_assigned(1)
            await one.until_assigned(2)
            with pytest.raises(NotOwnerError):
                await one.consumer.commit(dict.fromkeys(moved, Committed(1)), first)
            await one.consumer.commit(dict.fromkeys(moved, Committed(2)), one.generation)

    async def test_nothing_is_revoked_when_a_member_leaves(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(4)
        async with (
            joined(cluster, topic, group, "one") as one,
            joined(cluster, topic, group, "two") as two,
        ):
            await one.until_assigned(2)
            await two.until_assigned(2)
            theirs, before = two.owned, len(changes(one))
            await two.consumer.stop()
            await one.until_assigned(4)
            assert changes(one)[before:] == [("assigned", theirs)]

    async def test_a_topic_that_appears_later_is_read_as_well(
        self, cluster: Cluster, group: str
    ) -> None:
        # The broker may have topics of the same test with another client.
        late = f"late-{group}"
        first = await cluster.create_topic(1, late)
        async with joined(
            cluster, None, group, pattern=f"{late}-.*", properties={"metadata_max_age_ms": 500}
        ) as member:
            [old] = await member.until_assigned(1)
            member.consumer.start_at({old: 0})
            await fill(cluster, first, {0: LETTERS})
            await member.take(8)
            second = await cluster.create_topic(1, late)
            await fill(cluster, second, {0: ["new"]})
            await member.until_assigned(2)
            assert {tp.topic: texts(records) for tp, records in (await member.take(1)).items()} == {
                second: ["new"]
            }
            assert "revoked" not in [kind for kind, _ in changes(member)]

    async def test_stop_inside_a_revocation_gives_everything_to_the_others(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        async with joined(cluster, topic, group, "one") as one:
            await one.until_assigned(2)
            begun, _ = held(one)
            async with joined(cluster, topic, group, "two") as two:
                await soon(begun)
                await one.consumer.stop()
                await two.until_assigned(2)


class TopiclessMemberContract:
    """A member may join a group without a topic to read."""

    async def test_a_rebalance_without_a_reason_changes_nothing(
        self, cluster: Cluster, group: str
    ) -> None:
        topic = await cluster.create_topic(2)
        async with (
            joined(cluster, topic, group, "one") as one,
            joined(cluster, None, group, "two", pattern="x") as two,
        ):
            await one.until_assigned(2)
            await two.until(lambda: two.generation == one.generation > 0)
            assert changes(one) == [("assigned", one.owned)]


def changes(member: Member) -> list[Event]:
    """What its listener was told, without the calls that named no partition."""
    return [event for event in member.events if event[1]]
