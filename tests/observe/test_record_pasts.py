"""What is remembered of single records, and for how long."""

from __future__ import annotations

import dataclasses
import json

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import HandlerError, TopicPartition
from reactive_kafka.events import (
    ActionTaken,
    ChannelFailed,
    HandlerRetried,
    RecordDeadLettered,
    RecordIgnored,
    RecordPutOff,
)
from reactive_kafka.observe.record_pasts import MOST_ENTRIES, MOST_RECORDS, RecordPasts

PLACE = TopicPartition("orders", 3)
ERROR = ValueError("no amount")


def pasts(at: float = 100.0) -> RecordPasts:
    return RecordPasts(lambda: at)


def ignored(offset: int = 7, reason: str = "ValueError: no amount") -> RecordIgnored:
    return RecordIgnored(
        channel="orders", partition=PLACE, offset=offset, reason=reason, error=ERROR
    )


def skip(outcome: str = "ok", arguments: str | None = None) -> ActionTaken:
    given = {"topic": "orders", "partition": 3, "offset": 7}
    return ActionTaken(
        channel="orders",
        number=1,
        action="skip",
        arguments=json.dumps(given) if arguments is None else arguments,
        remote="10.9.8.7",
        status=200,
        outcome=outcome,  # type: ignore[arg-type]
        result="done",
    )


def test_the_way_of_a_record_is_kept_in_order_up_to_its_end() -> None:
    found = pasts()
    about = {"channel": "orders", "partition": PLACE, "offset": 7, "reason": "ValueError: x"}
    found.on(HandlerRetried(**about, attempt=1, wait_s=2.0))
    found.on(RecordDeadLettered(**about, to="letters"))
    retried, dead = found.of("orders", PLACE, 7)
    assert retried.text == "attempt 1 failed, the next one came in 2 s: ValueError: x"
    assert (retried.ending, retried.next_attempt) == (None, 2)
    assert dead.text == "it was nacked, and became a dead letter in letters: ValueError: x"
    assert (dead.ending, dead.to, dead.at) == ("dead-letter", "letters", 100.0)
    assert found.of("orders", PLACE, 8) == ()
    assert found.of("audit", PLACE, 7) == ()


def test_a_record_for_which_its_channel_stopped_has_failed() -> None:
    found = pasts()
    cause = HandlerError("orders", PLACE, 7, ERROR)
    found.on(ChannelFailed(channel="orders", reason="it stays stopped", error=cause))
    found.on(ChannelFailed(channel="orders", reason="no broker", error=ERROR))
    (past,) = found.of("orders", PLACE, 7)
    assert past.ending == "failed"


def test_put_off_is_not_a_failed_attempt() -> None:
    found = pasts()
    found.on(
        RecordPutOff(
            channel="orders", partition=PLACE, offset=7, reason="later", to="retry-60", delay_s=60.0
        )
    )
    (past,) = found.of("orders", PLACE, 7)
    assert (past.ending, past.text) == (
        "put-off",
        "its handler put it off for 60 s, through retry-60",
    )


def test_a_skip_by_an_operator_is_kept_if_it_was_carried_out() -> None:
    found = pasts()
    found.on(skip("refused"))
    found.on(skip(arguments='{"topic": "orders", "part'))
    found.on(skip(arguments="[]"))
    assert found.of("orders", PLACE, 7) == ()
    found.on(skip())
    (past,) = found.of("orders", PLACE, 7)
    assert (past.ending, past.text) == ("skipped", "an operator at 10.9.8.7 asked to skip it")


@given(st.lists(st.integers(0, 30), max_size=200))
def test_of_one_record_the_last_events_are_kept(offsets: list[int]) -> None:
    found = pasts()
    for number, offset in enumerate(offsets):
        found.on(ignored(offset, f"E: {number}"))
    for offset in set(offsets):
        numbers = [number for number, one in enumerate(offsets) if one == offset]
        kept = [int(past.text.rpartition(" ")[2]) for past in found.of("orders", PLACE, offset)]
        assert kept == numbers[-MOST_ENTRIES:]
    assert not found.has_forgotten


def test_a_flood_of_failures_is_forgotten_from_its_beginning_and_that_is_known() -> None:
    found = pasts()
    for offset in range(MOST_RECORDS):
        found.on(ignored(offset, "x" * 10_000))
    assert not found.has_forgotten
    assert found.of("orders", PLACE, 0) != ()
    found.on(ignored(MOST_RECORDS))
    assert found.has_forgotten
    assert found.of("orders", PLACE, 0) == ()
    (past,) = found.of("orders", PLACE, 1)
    assert len(past.text) < 400


def test_a_record_that_fails_again_is_remembered_as_long_as_one_that_has_just_failed() -> None:
    found = pasts()
    for offset in (*range(MOST_RECORDS), 0, MOST_RECORDS):
        found.on(ignored(offset))
    assert len(found.of("orders", PLACE, 0)) == 2
    assert found.of("orders", PLACE, 1) == ()


def test_a_skip_that_came_too_late_is_no_ending() -> None:
    found = pasts()
    found.on(dataclasses.replace(skip(), has_changed=False))
    (past,) = found.of("orders", PLACE, 7)
    assert past.ending is None
    assert past.text == "an operator at 10.9.8.7 asked to skip it after it was settled"
