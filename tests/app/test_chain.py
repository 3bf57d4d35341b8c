"""A handler whose records are written while it goes on: whatever it makes, each record is settled
once, and rightly.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reactive_kafka import App, Message, Record, RejectedRecordError, TransientBrokerError
from reactive_kafka.events import RecordIgnored
from reactive_kafka.testing import FakeClock, TestApp, run_in_virtual_time
from tests.app.helpers import Recorder, running, send

MADE = (
    "bytes",
    "bytes",
    "bytes",
    "text",
    "json",
    "keyed",
    "placed",
    "named",
    "several",
    "none",
    "wrong",
    "raises",
)


def result_of(kind: str, number: int) -> Any:
    """What a handler makes of record *number*."""
    text = str(number)
    match kind:
        case "bytes":
            return text.encode()
        case "text":
            return text
        case "json":
            return number
        case "keyed":
            return Record(text, key=b"k")
        case "placed":
            return Record(text, partition=0)
        case "named":
            return Record(text, channel="invoices")
        case "several":
            return [Record(text), Record(text)]
        case "wrong":
            return [Record(text), text]
        case "raises":
            raise ValueError(text)
    return None


def written(test: TestApp) -> list[int]:
    return [int(record.value or b"") for record in test.records("invoices")]


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(MADE), min_size=1, max_size=25),
    ordering=st.sampled_from(["partition", "key", "unordered"]),
    concurrency=st.integers(1, 3),
    most=st.integers(1, 8),
    wants_message=st.booleans(),
    refused=st.integers(0, 3),
    away=st.integers(0, 2),
    pause_each=st.integers(1, 9),
)
# Each is settled before the next.
@example(["bytes", "bytes", "raises", "bytes"], "partition", 1, 8, False, 0, 0, 1)
def test_each_record_is_written_or_fails_and_is_settled(
    kinds: list[str],
    ordering: str,
    concurrency: int,
    most: int,
    wants_message: bool,
    refused: int,
    away: int,
    pause_each: int,
) -> None:
    recorder = Recorder()

    async def main(clock: FakeClock) -> None:
        orders = {
            "group_id": "billing",
            "auto_offset_reset": "earliest",
            "failure_strategy": "ignore",
        }
        orders |= (
            {"ordering": ordering}
            if ordering == "key"
            else {"ordering": ordering, "concurrency": concurrency}
        )
        invoices = {"wait_for_write": False, "max_in_flight": most}
        app = App(
            {"incoming": {"orders": orders}, "outgoing": {"invoices": invoices}}, observer=recorder
        )

        all_are_sent = asyncio.Event()

        async def of_payload(order: bytes) -> Any:
            number = int(order)
            await all_are_sent.wait()
            if number % pause_each == 0:
                # What was made before is written meanwhile.
                await asyncio.sleep(0.001)
            return result_of(kinds[number], number)

        async def of_message(message: Message[bytes]) -> Any:
            return await of_payload(message.payload)

        app.incoming("orders")(
            app.outgoing("invoices")(of_message if wants_message else of_payload)
        )
        async with running(app) as test:
            if refused:
                test.broker.fail_next("send", RejectedRecordError("no"), times=refused)
            await send(test, *[str(number).encode() for number in range(len(kinds))])
            if away:
                test.broker.fail_next("send", TransientBrokerError("away"), times=away)
            all_are_sent.set()
            await test.settled(timeout=120)
            stored = written(test)
            await app.stop()
            assert test.broker.committed("billing")[("orders", 0)].offset == len(kinds)
        failed = {event.offset for event in recorder.of(RecordIgnored)}
        for number, kind in enumerate(kinds):
            if kind in ("wrong", "raises"):
                assert number in failed
            elif kind != "none" and number not in failed:
                assert stored.count(number) == (2 if kind == "several" else 1)
            if kind in ("none", "wrong", "raises") or (number in failed and kind != "several"):
                assert number not in stored, "what has failed is not written, too"
            if kind == "none":
                assert number not in failed
        assert len(failed) <= kinds.count("wrong") + kinds.count("raises") + refused
        if ordering == "partition" and concurrency == 1:
            assert stored == sorted(stored)

    run_in_virtual_time(main)


@pytest.mark.parametrize("wants_message", [True, False])
def test_a_handler_is_tried_again_where_what_it_makes_cannot_be_sent(wants_message: bool) -> None:
    tries: list[bytes] = []

    async def main(clock: FakeClock) -> None:
        orders = {"group_id": "billing", "auto_offset_reset": "earliest"}
        app = App(
            {"incoming": {"orders": orders}, "outgoing": {"invoices": {"wait_for_write": False}}}
        )

        def made(payload: bytes) -> Any:
            tries.append(payload)
            return payload if len(tries) == 3 else [Record(b""), b""]

        async def of_payload(order: bytes) -> Any:
            return made(order)

        async def of_message(message: Message[bytes]) -> Any:
            assert message.attempt == len(tries) + 1
            return made(message.payload)

        handler = app.outgoing("invoices")(of_message if wants_message else of_payload)
        app.incoming("orders", retry=3)(handler)
        async with running(app) as test:
            await send(test, b"a")
            await test.settled(timeout=60)
            assert [record.value for record in test.records("invoices")] == [b"a"]
        assert tries == [b"a"] * 3

    run_in_virtual_time(main)
