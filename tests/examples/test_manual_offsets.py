"""Each way of marking by hand in examples/manual_offsets: what is marked, when, and what comes
again after a crash.
"""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.helpers import in_virtual_time, make_broker, running, settle_down, until

FOLDER = Path(__file__).parents[2] / "examples" / "manual_offsets"
MANY = [f"{number}" for number in range(250)]


def process(name: str, **attributes: Any) -> ModuleType:
    """The example as a new process has it: nothing in its memory. *attributes* are set over its
    own.
    """
    spec = spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    for attribute, value in attributes.items():
        assert hasattr(module, attribute)
        setattr(module, attribute, value)
    return module


def produce(broker: MemoryBroker, topic: str, *values: str) -> None:
    for value in values:
        broker.produce(topic, value.encode(), partition=0)


def mark(broker: MemoryBroker, group: str, topic: str) -> int | None:
    """The group's position."""
    found = broker.committed(group).get(TopicPartition(topic, 0))
    return None if found is None else found.offset


def handled(test: TestApp, channel: str) -> int:
    """How many records its handler is done with."""
    [partition] = test.app.channel(channel).facts().partitions
    return partition.position - partition.queued - partition.in_flight


async def crash(test: TestApp) -> None:
    """End the process in the middle of everything, after a last commit of what it had marked."""
    await test.app.stop(drain=False)


@in_virtual_time
async def test_by_hand_is_the_default_and_a_channel_or_a_handler_may_say_otherwise() -> None:
    broker, example = make_broker(), process("per_channel")
    async with running(example.app, broker=broker) as test:
        for topic in ("payments", "clicks", "visits"):
            produce(broker, topic, "first", "on hold", "third")
        await until(
            lambda: mark(broker, "shop", "clicks") == 3 and mark(broker, "shop", "visits") == 3
        )
        await until(lambda: mark(broker, "shop", "payments") == 1)
        await crash(test)
    assert example.booked == ["first", "third"]
    assert mark(broker, "shop", "payments") == 1, "the one on hold, which nobody has acked"


@in_virtual_time
async def test_a_marked_record_and_those_before_it_do_not_come_again_and_those_behind_it_do() -> (
    None
):
    broker, loads = make_broker(), list[list[str]]()
    example = process("mark_one", load=lambda lines: loads.append(list(lines)))
    async with running(example.app, broker=broker) as test:
        produce(broker, "lines", "a", "b", "END", "c", "d")
        await until(lambda: list(example.files.values()) == [["c", "d"]])
        await crash(test)
    assert (loads, mark(broker, "loader", "lines")) == ([["a", "b"]], 3)

    example = process("mark_one", load=lambda lines: loads.append(list(lines)))
    async with running(example.app, broker=broker):
        await until(lambda: list(example.files.values()) == [["c", "d"]])
        generation = broker.generation("loader")
        # The lines of the file that is not complete come again, once.
        broker.rebalance("loader")
        await until(
            lambda: (
                broker.generation("loader") > generation
                and list(example.files.values()) == [["c", "d"]]
            ),
            60,
        )
        produce(broker, "lines", "END")
        await until(lambda: len(loads) == 2)
    assert (loads[1], mark(broker, "loader", "lines")) == (["c", "d"], 6)


@in_virtual_time
async def test_a_full_buffer_is_written_at_once_and_its_last_record_marked() -> None:
    broker, written = make_broker(), list[list[str]]()
    example = process("buffering", write=written.append)
    async with running(example.app, broker=broker) as test:
        produce(broker, "events", *MANY)
        await until(lambda: [len(buffer) for buffer in example.buffers.values()] == [50])
        await until(lambda: mark(broker, "writer", "events") == 200)
        await crash(test)
    assert written == [MANY[:100], MANY[100:200]]

    example = process("buffering", write=written.append)
    async with running(example.app, broker=broker):
        produce(broker, "events", *MANY[:50])
        await until(lambda: len(written) == 3)
    assert written[2] == MANY[200:] + MANY[:50]
    assert mark(broker, "writer", "events") == 300


@in_virtual_time
async def test_what_is_left_is_written_and_marked_at_the_end() -> None:
    broker, written = make_broker(), list[list[str]]()
    example = process("flush_at_the_end", write=written.append)
    # The stop calls it as well, and it would do the same.
    example.app.declared.hooks.revoked.clear()
    async with running(example.app, broker=broker) as test:
        produce(broker, "events", *MANY[:120])
        await until(lambda: [len(buffer) for buffer in example.buffers.values()] == [20])
        await test.app.stop()
    assert written == [MANY[:100], MANY[100:120]]
    assert mark(broker, "writer", "events") == 120


@in_virtual_time
async def test_what_is_left_is_written_and_marked_when_a_partition_goes_and_nothing_of_it_comes_again() -> (
    None
):
    broker, written = make_broker(), list[list[str]]()
    example = process("flush_at_the_end", write=written.append)
    async with running(example.app, broker=broker):
        produce(broker, "events", *MANY[:20])
        await until(lambda: [len(buffer) for buffer in example.buffers.values()] == [20])
        generation = broker.generation("writer")
        broker.rebalance("writer")
        await until(lambda: broker.generation("writer") > generation, 60)
        assert (written, mark(broker, "writer", "events")) == ([MANY[:20]], 20)
        produce(broker, "events", "next")
        await until(lambda: any(example.buffers.values()))
    assert written == [MANY[:20], ["next"]]


@in_virtual_time
async def test_automatic_acks_wait_for_the_minute_and_an_extra_mark_does_not() -> None:
    broker, example = make_broker(), process("extra_marks")
    async with running(example.app, broker=broker) as test:
        produce(broker, "readings", *MANY[:99])
        await until(lambda: handled(test, "readings") == 99)
        assert mark(broker, "meter", "readings") is None
        produce(broker, "readings", *MANY[:1])
        await until(lambda: mark(broker, "meter", "readings") == 100)
        produce(broker, "readings", "cheap", "expensive", "cheap")
        await until(lambda: handled(test, "readings") == 103)
        await settle_down()
        assert mark(broker, "meter", "readings") == 102
        # The minute is over.
        await until(lambda: mark(broker, "meter", "readings") == 103, 70)
        await test.settled()


def event(order: str, step: str) -> str:
    return json.dumps({"order": order, "step": step})


def open_in(example: ModuleType) -> list[list[str]]:
    """The steps of its open sagas."""
    return [saga.steps for log in example.logs.values() for saga in log.sagas.values()]


@pytest.mark.parametrize("goes_on", ["after a crash", "after a rebalance"])
@in_virtual_time
async def test_open_sagas_are_rebuilt_from_the_last_mark(goes_on: str) -> None:
    broker, completed = make_broker(), list[tuple[str, list[str]]]()
    steps = [
        ("a", "paid"),
        ("a", "delivered"),
        ("b", "paid"),
        ("c", "paid"),
        ("c", "delivered"),
        ("b", "packed"),
    ]

    def complete(order: str, steps: list[str]) -> None:
        completed.append((order, steps))

    example = process("saga", complete=complete)
    async with running(example.app, broker=broker) as test:
        produce(broker, "orders", *(event(*step) for step in steps))
        await until(lambda: open_in(example) == [["paid", "packed"]])
        # C is done, and b, which is older, is not.
        await until(lambda: mark(broker, "fulfilment", "orders") == 2)
        if goes_on == "after a rebalance":
            generation = broker.generation("fulfilment")
            broker.rebalance("fulfilment")
            await until(
                lambda: broker.generation("fulfilment") > generation and len(completed) == 3, 60
            )
        await crash(test)
    done = [("a", ["paid", "delivered"]), ("c", ["paid", "delivered"])]
    assert completed[:2] == done

    example = process("saga", complete=complete)
    async with running(example.app, broker=broker):
        produce(broker, "orders", event("b", "delivered"))
        await until(lambda: mark(broker, "fulfilment", "orders") == 7)
    assert completed[-1] == ("b", ["paid", "packed", "delivered"])
    assert {order for order, _ in completed[2:-1]} == {"c"}, (
        "what was completed after the mark is completed again"
    )
