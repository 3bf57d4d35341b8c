"""Who gets a place for a transaction, and who waits for one."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.outgoing.transactions.producer_places import ProducerPlace, ProducerPlaces
from reactive_kafka.testing import FakeClock, run_in_virtual_time
from tests.app.helpers import settle_down

LAST = ProducerPlace.LAST
ANY = ProducerPlace.ANY


async def test_the_last_place_is_for_a_transaction_that_has_partitions() -> None:
    places = ProducerPlaces(2)
    assert await places.take(has_partitions=False) is ANY
    plain = asyncio.ensure_future(places.take(has_partitions=False))
    first = asyncio.ensure_future(places.take(has_partitions=True))
    second = asyncio.ensure_future(places.take(has_partitions=True))
    await settle_down()
    assert first.result() is LAST
    places.give_back(LAST)
    await settle_down()
    assert not plain.done()
    assert second.result() is LAST


async def test_a_transaction_without_partitions_has_its_turn_before_those_that_come_later() -> None:
    places = ProducerPlaces(2)
    assert await places.take(has_partitions=True) is ANY
    assert await places.take(has_partitions=True) is LAST
    plain = asyncio.ensure_future(places.take(has_partitions=False))
    await settle_down()
    later = asyncio.ensure_future(places.take(has_partitions=True))
    await settle_down()
    places.give_back(ANY)
    await settle_down()
    assert plain.result() is ANY
    assert not later.done()


async def test_who_is_cancelled_takes_no_place_not_even_one_that_it_was_given_just_now() -> None:
    places = ProducerPlaces(2)
    await places.take(has_partitions=True)
    await places.take(has_partitions=True)
    waiting = [asyncio.ensure_future(places.take(has_partitions=True)) for _ in range(3)]
    await settle_down()
    waiting[0].cancel()
    await settle_down()
    places.give_back(LAST)
    waiting[1].cancel()
    await settle_down()
    assert waiting[2].result() is LAST
    assert [one.cancelled() for one in waiting] == [True, True, False]


async def test_all_who_wait_have_a_place_when_there_are_no_producers_any_more() -> None:
    places = ProducerPlaces(2)
    await places.take(has_partitions=True)
    await places.take(has_partitions=True)
    waiting = [
        asyncio.ensure_future(places.take(has_partitions=has_partitions))
        for has_partitions in (False, True, False)
    ]
    await settle_down()
    places.close()
    await asyncio.wait_for(asyncio.gather(*waiting), 5)
    await places.take(has_partitions=False)


@given(st.lists(st.booleans(), max_size=30), st.integers(2, 4))
def test_no_more_have_places_than_there_are_and_everyone_gets_one(
    all_have_partitions: list[bool], most: int
) -> None:
    async def play(_: FakeClock) -> None:
        places = ProducerPlaces(most)
        now = 0
        done = 0

        async def use(*, has_partitions: bool) -> None:
            nonlocal now, done
            place = await places.take(has_partitions=has_partitions)
            now += 1
            assert now <= most
            await asyncio.sleep(1)
            now -= 1
            places.give_back(place)
            done += 1

        await asyncio.gather(*(use(has_partitions=each) for each in all_have_partitions))
        assert done == len(all_have_partitions)

    run_in_virtual_time(play)
