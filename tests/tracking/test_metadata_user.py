"""Which of the user's strings goes with a position, when it is used up, and what a string may
be.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.tracking.metadata.codec import LIMIT, decode, encode, units
from reactive_kafka.tracking.metadata.user import (
    MetadataLimit,
    Supplied,
    UserMetadata,
    check_metadata,
)


def text_of(supplied: Supplied | None) -> str | None:
    return None if supplied is None else supplied.text


# -- what may be stored


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_whatever_is_allowed_is_stored_and_read_as_it_is(text: str) -> None:
    check_metadata(text)
    stored = encode(2**63 - 1, (), text)
    assert units(stored) <= LIMIT
    assert decode(stored, 2**63 - 1).user == text


@pytest.mark.parametrize("prefix", ["rk1 ", "rk7", "rk9 00"])
def test_a_string_that_begins_as_ours_do_has_less_room(prefix: str) -> None:
    longest = next(
        length
        for length in range(LIMIT, 0, -1)
        if units(encode(2**63 - 1, (), prefix.ljust(length, "x"))) > 0
    )
    check_metadata(prefix.ljust(longest, "x"))
    with pytest.raises(ValueError, match="begins as our own do"):
        check_metadata(prefix.ljust(longest + 1, "x"))


@pytest.mark.parametrize(
    "text", ["x" * 4096, "\N{GRINNING FACE}" * 2048, "", "\1", "rk", "rkx" + "y" * 4093]
)
def test_4096_utf16_units_are_allowed(text: str) -> None:
    check_metadata(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x" * 4097, "4097 UTF-16 units is too long: at most 4,096 are allowed"),
        ("\N{GRINNING FACE}" * 2048 + "x", "4097 UTF-16 units"),
        ("half \ud83d of one", "lone surrogate"),
        ("a\0b", "with a NUL in it"),
        (b"bytes", "must be a string, not bytes"),
        (None, "must be a string, not NoneType"),
    ],
)
def test_anything_else_is_refused(text: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_metadata(text)


# -- which one is due


def test_the_newest_goes_with_the_next_new_position() -> None:
    texts = UserMetadata()
    texts.supply(5, "of five")
    texts.supply(3, "of three")
    assert text_of(texts.for_new(0)) == "of three"
    texts.store("later")
    assert text_of(texts.for_new(0)) == "later"
    assert text_of(texts.for_same(0)) == "of three"


def test_what_waits_for_a_new_position_goes_with_no_other() -> None:
    texts = UserMetadata()
    texts.store("later")
    assert texts.for_same(0) is None
    assert not texts.has_acked


def test_a_string_is_used_up_when_it_was_stored_with_a_new_position_and_those_before_it_too() -> (
    None
):
    texts = UserMetadata()
    texts.store("later")
    texts.supply(0, "newer")
    carried = texts.for_new(0)
    assert carried is not None
    texts.supply(1, "came while that was on its way")
    texts.stored(carried.number, 0)
    assert text_of(texts.for_new(1)) == "came while that was on its way"
    assert texts.later is None


def test_exact_takes_the_string_of_the_last_record_else_the_newest() -> None:
    texts = UserMetadata(is_exact=True)
    texts.supply(1, "one")
    texts.supply(9, "nine")
    texts.supply(0, "zero")
    assert [text_of(texts.for_new(last)) for last in (0, 1, 2, 9)] == [
        "zero",
        "one",
        "zero",
        "nine",
    ]


def test_exact_a_string_stays_reserved_for_its_own_record() -> None:
    texts = UserMetadata(is_exact=True)
    texts.supply(9, "nine")
    carried = texts.for_new(0)
    assert text_of(carried) == "nine"
    assert carried is not None
    texts.stored(carried.number, 0)
    assert texts.for_new(1) is None
    assert text_of(texts.for_new(9)) == "nine"


def test_exact_what_belongs_to_records_that_were_passed_is_not_the_newest_any_more() -> None:
    texts = UserMetadata(is_exact=True)
    texts.supply(1, "one")
    texts.supply(9, "nine")
    texts.supply(0, "zero")
    carried = texts.for_new(1)
    assert carried is not None
    texts.stored(carried.number, 1)
    assert text_of(texts.for_new(2)) == "nine"


class Model:
    """The rules, said another way: a list of all strings that ever came."""

    def __init__(self, *, is_exact: bool) -> None:
        self.is_exact = is_exact
        self.all: list[tuple[int | None, str]] = []
        self.used = 0
        self.passed = -1

    def due(self, last: int, *, is_new: bool) -> str | None:
        own = [text for offset, text in self.all if offset == last]
        if self.is_exact and own:
            return own[-1]
        waiting = [
            text
            for number, (offset, text) in enumerate(self.all)
            if number >= self.used
            and (is_new or offset is not None)
            and not (self.is_exact and offset is not None and offset < self.passed)
        ]
        if not self.is_exact and not is_new:
            acked = [number for number, (offset, _) in enumerate(self.all) if offset is not None]
            return self.all[acked[-1]][1] if acked and acked[-1] >= self.used else None
        return waiting[-1] if waiting else None


@given(st.booleans(), st.data())
def test_what_is_due_is_what_the_rules_say(is_exact: bool, data: st.DataObject) -> None:
    texts, model = UserMetadata(is_exact=is_exact), Model(is_exact=is_exact)
    acked: set[int] = set()
    for number in range(data.draw(st.integers(1, 40))):
        what = data.draw(st.sampled_from(["ack", "ack", "store", "commit"]))
        if what == "ack":
            offset = data.draw(st.integers(max(0, model.passed + 1), max(0, model.passed) + 12))
            if offset not in acked:
                acked.add(offset)
                texts.supply(offset, f"{number}")
                model.all.append((offset, f"{number}"))
        elif what == "store":
            texts.store(f"{number}")
            model.all.append((None, f"{number}"))
        last = data.draw(st.integers(max(0, model.passed), max(0, model.passed) + 5))
        assert text_of(texts.for_same(last)) == model.due(last, is_new=False)
        carried = texts.for_new(last)
        assert text_of(carried) == model.due(last, is_new=True)
        if what == "commit":
            count = 0 if carried is None else carried.number
            model.used, model.passed = max(model.used, count), last
            texts.stored(count, last)
            texts.forget_before(last)


def test_what_nobody_can_ask_for_any_more_is_forgotten() -> None:
    texts = UserMetadata(is_exact=True)
    for offset in range(10_000):
        texts.supply(offset, "x" * 100)
        texts.stored(offset + 1, offset)
        texts.forget_before(offset)
    assert len(texts._by_offset) < 200


# -- what a cluster takes


def test_what_was_refused_is_not_tried_again_and_what_is_shorter_is() -> None:
    room = MetadataLimit()
    assert (room.for_user, room.for_acks, room.warning) == (LIMIT, LIMIT, None)
    room.refused(1000)
    room.refused(3000)
    assert (room.for_user, room.for_acks) == (999, 500)
    room.dropped += 1
    assert room.warning is not None
    assert "less than 1,000 units" in room.warning
