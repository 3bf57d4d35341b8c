"""What is counted of an application, and what counts as growing."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

from reactive_kafka.outgoing.transactions.transaction import Sender
from reactive_kafka.testing import FakeClock, run_in_virtual_time
from tests.simulation.held import grows, held, timers


def sender_with(**attributes: Any) -> Sender:
    """Any object of the package, with more attributes."""
    sender = Sender()
    sender.__dict__.update(attributes)
    return sender


def test_objects_are_counted_by_class_and_collections_by_attribute() -> None:
    sizes = held([sender_with(some=[1, 2, 3]), sender_with(some=[4])]).sizes
    assert sizes["outgoing.transactions.transaction.Sender"] == 2
    assert sizes["outgoing.transactions.transaction.Sender.some"] == 4


def test_what_is_in_a_collection_of_collections_counts_under_the_name_of_the_outer_one() -> None:
    sizes = held(sender_with(some={"a": [1, 2], "b": {3}})).sizes
    assert (
        sizes["outgoing.transactions.transaction.Sender.some"],
        sizes["outgoing.transactions.transaction.Sender.some[]"],
    ) == (2, 3)


def test_an_object_is_found_behind_closures_partials_methods_and_exceptions() -> None:
    inner = sender_with()

    def closure() -> object:
        return inner

    error = ValueError()
    error.__context__ = KeyError(sender_with())
    for way in (closure, partial(print, sender_with()), sender_with().committed, error):
        assert held(sender_with(way=way)).sizes["outgoing.transactions.transaction.Sender"] == 2, (
            way
        )


async def test_an_object_is_found_in_the_frame_of_a_task_that_waits() -> None:
    async def waits(sender: Sender) -> None:
        await asyncio.sleep(3600)

    task = asyncio.create_task(waits(sender_with()))
    await asyncio.sleep(0)
    assert held(sender_with(tasks={task})).sizes["outgoing.transactions.transaction.Sender"] == 2
    task.cancel()


async def test_a_collection_with_a_task_that_has_ended_is_named() -> None:
    async def ends() -> None: ...

    done, waiting = asyncio.create_task(ends()), asyncio.create_task(asyncio.sleep(3600))
    await done
    assert held(sender_with(tasks={done, waiting})).over == {
        "outgoing.transactions.transaction.Sender.tasks"
    }
    assert held(sender_with(tasks={waiting})).over == set()
    waiting.cancel()


def test_timers_of_the_package_are_counted_until_they_are_cancelled() -> None:
    async def main(clock: FakeClock) -> None:
        loop = asyncio.get_running_loop()
        own = loop.call_later(60, partial(sender_with().committed, 1), 1.0)
        loop.call_later(60, print)
        assert timers(loop) == {"outgoing.transactions.transaction.Sender.committed": 1}
        own.cancel()
        assert not timers(loop)

    run_in_virtual_time(main)


def series(*numbers: int) -> list[Counter[str]]:
    return [Counter({"a": number}) for number in numbers]


def test_one_more_with_each_rest_is_growth_and_what_comes_and_goes_is_none() -> None:
    assert grows(series(0, 0, 1, 2, 3, 4, 5, 6, 7)) == ["a grows: [0, 0, 1, 2, 3, 4, 5, 6, 7]"]
    assert not grows(series(0, 5, 9, 9, 9, 9, 9, 9, 9)), "what is filled once"
    assert not grows(series(0, 0, 6, 0, 6, 0, 6, 0, 6))
    assert not grows(series(0, 0, 0, 0, 6, 6, 0, 6, 6))
    assert not grows(series(9, 8, 7, 6, 5, 4, 3, 2, 1))
