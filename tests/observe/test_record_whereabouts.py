"""Where a record is: each offset has one place, and the sentences fit it."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

from hypothesis import assume, given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.observe.record_pasts import Ending, PastEvent
from reactive_kafka.observe.record_whereabouts import (
    Place,
    RecordFacts,
    Stage,
    Whereabouts,
    whereabouts,
)

ORDERS_3 = TopicPartition("orders", 3)


def facts(**changes: Any) -> RecordFacts:
    """Offset 42 of a partition that is read from 30 up to 50 and committed up to 40."""
    plain = RecordFacts(
        channel="orders",
        state="running",
        partition=ORDERS_3,
        offset=42,
        group_id="billing",
        handlers=("shop.invoice",),
        is_assigned=True,
        position=50,
        began=30,
        committed=40,
        first_unsettled=40,
        log_end=60,
        dead_letter_topic="letters",
    )
    return dataclasses.replace(plain, **changes)


def where(*past: PastEvent, has_forgotten: bool = False, **changes: Any) -> Whereabouts:
    return whereabouts(facts(**changes), past, has_forgotten=has_forgotten)


_offsets = st.integers(0, 30)
any_facts = st.builds(
    RecordFacts,
    channel=st.just("orders"),
    state=st.sampled_from(["running", "paused", "failed", "starting", "stopped"]),
    partition=st.just(ORDERS_3),
    offset=_offsets,
    group_id=st.sampled_from([None, "billing"]),
    handlers=st.sampled_from([(), ("shop.invoice",)]),
    is_assigned=st.booleans(),
    position=st.none() | _offsets,
    began=st.none() | _offsets,
    committed=st.none() | _offsets,
    commits=st.booleans(),
    first_unsettled=st.none() | _offsets,
    log_end=st.none() | _offsets,
    stage=st.none() | st.sampled_from(get_args(Stage)),
    age_s=st.none() | st.floats(0, 100),
    attempt=st.none() | st.integers(1, 9),
    is_skipped_later=st.booleans(),
    dead_letter_topic=st.sampled_from([None, "letters"]),
)
any_past = st.lists(
    st.builds(
        PastEvent,
        at=st.floats(0, 100),
        text=st.just("it happened"),
        ending=st.none() | st.sampled_from(get_args(Ending)),
        to=st.sampled_from([None, "letters", "retry-60"]),
    ),
    max_size=3,
)


@given(any_facts, any_past, st.booleans())
def test_each_record_has_one_place_that_agrees_with_the_positions(
    known: RecordFacts, past: list[PastEvent], has_forgotten: bool
) -> None:
    found = whereabouts(known, past, has_forgotten=has_forgotten)
    assert found.place in get_args(Place)
    assert all(sentence and sentence.endswith(".") for sentence in found.text)
    if not known.is_assigned:
        assert found.place == "elsewhere"
        return
    if known.position is None:
        assert found.place == "starting"
        return
    is_read = known.offset < known.position
    assert (found.place in ("not-read", "not-written")) == (not is_read)
    if found.place == "not-written":
        assert known.log_end is not None
        assert known.offset >= known.log_end
    if found.place == "committed":
        assert known.committed is not None
        assert known.offset < known.committed
    if found.place in ("settled", "committed", "no-record", "unknown"):
        assert known.stage not in ("queued", "handling", "failing")
        assert not found.can_skip


@given(any_facts, any_past)
def test_what_has_not_ended_has_no_ending_and_no_letter(
    known: RecordFacts, past: list[PastEvent]
) -> None:
    found = whereabouts(known, past, has_forgotten=False)
    if found.place in ("not-read", "not-written", "queued", "in-flight", "failing", "starting"):
        assert found.ending is None
        assert found.letters is None


@given(any_facts, st.booleans())
def test_an_ack_is_only_said_where_a_failure_would_be_known(
    known: RecordFacts, has_forgotten: bool
) -> None:
    text = " ".join(whereabouts(known, [], has_forgotten=has_forgotten).text)
    if "remembers no failure" in text:
        assert not has_forgotten
        assert known.began is not None
        assert known.offset >= known.began


@given(any_facts, any_past)
def test_the_last_ending_counts(known: RecordFacts, past: list[PastEvent]) -> None:
    endings = [event.ending for event in past if event.ending is not None]
    found = whereabouts(known, past, has_forgotten=False)
    assume(found.ending is not None)
    assert found.ending == endings[-1]


def test_a_record_with_a_handler_says_which_one_for_how_long_and_the_attempt() -> None:
    found = where(stage="handling", age_s=12.34, attempt=3)
    assert found.place == "in-flight"
    assert found.text == ("Handler shop.invoice has it, for 12.3 s, attempt 3.",)
    assert found.can_skip


def test_a_record_settled_behind_an_unsettled_one_says_what_it_waits_for() -> None:
    found = where(stage="settled")
    assert found.place == "settled"
    assert found.text == (
        "It is settled, and the committed position is 40: that waits for offset 40, which is not "
        "settled. After a crash the record may be handled again.",
        "It was acked, or skipped by a filter: this process remembers no failure of it.",
    )
    left = where(stage=None, first_unsettled=45)
    assert (
        left.text[0]
        == "It is settled, and the committed position is 40: the next commit passes it."
    )


def test_a_record_that_comes_later_says_how_many_come_before_it() -> None:
    assert where(offset=55).text == (
        "It was not read yet: orders-3 is read up to offset 50, at most 5 records before it.",
    )
    assert "and it comes next" in where(offset=50).text[0]
    assert "; the channel is paused." in where(offset=55, state="paused").text[0]
    assert where(offset=60).text == (
        "The log of orders-3 ends at 60: no such record was written yet.",
    )
    assert where(offset=55, is_skipped_later=True).text[1] == "It is skipped when it comes."


def test_a_dead_letter_names_its_topic() -> None:
    letter = PastEvent(1.0, "it was nacked", "dead-letter", "letters")
    found = where(letter, stage="settled")
    assert (found.ending, found.letters) == ("dead-letter", "letters")
    assert len(found.text) == 1


def test_what_cannot_be_known_is_said() -> None:
    before = where(offset=20)
    assert before.place == "committed"
    assert before.text[1] == "How it ended is not known here."
    assert before.letters == "letters", "a letter of it may be there"
    assert where(offset=20, committed=None).place == "unknown"
    assert where(offset=30, committed=None).place == "settled", "reading began with it"
    assert where(offset=35).letters is None, "it is known to have none"
    flooded = where(offset=35, has_forgotten=True)
    assert flooded.letters == "letters"
    assert "or it failed longer ago than this process remembers" in flooded.text[1]
    assert where(is_assigned=False).text == (
        "This process does not have orders-3. Ask the page of another member of group billing "
        "that has it: only that one knows.",
    )
