"""What is done above a position, as a text: it comes back, is never too long, and never says done
of what is open.
"""

from __future__ import annotations

import random
import re
from array import array
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.tracking.metadata import codec as metadata
from reactive_kafka.tracking.metadata.acks import MOST_OPEN, AckMap, bound, decode, encode

PLENTY = 10**6


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[int], int, int]:
    """Open offsets, base and until: sparse and dense stretches, and ends of both kinds."""
    base = draw(st.integers(0, 2**62))
    gaps = draw(
        st.lists(st.integers(0, 3) | st.integers(0, 500) | st.integers(0, 10**6), max_size=60)
    )
    offsets, at = [], base
    for gap in gaps:
        offsets.append(at + gap)
        at += gap + 1
    return offsets, base, at + draw(st.integers(0, 100))


def has_done(offsets: list[int], base: int, until: int) -> bool:
    return until - base > len(offsets)


@given(windows())
def test_what_was_told_comes_back(window: tuple[list[int], int, int]) -> None:
    offsets, base, until = window
    text, told = encode(offsets, base, until, PLENTY)
    if has_done(offsets, base, until):
        assert told == until
        assert decode(text, base) == AckMap(base, until, array("q", offsets))
    else:
        assert (text, told) == ("", base)


@given(windows(), st.integers(0, 80))
def test_a_text_that_was_cut_says_done_of_nothing_that_is_open(
    window: tuple[list[int], int, int], budget: int
) -> None:
    offsets, base, until = window
    text, told = encode(offsets, base, until, budget)
    assert len(text) <= budget
    assert base <= told <= until
    if not text:
        assert told == base
        return
    found = decode(text, base)
    assert found == AckMap(base, told, array("q", [offset for offset in offsets if offset < told]))
    assert not any(found.is_done(offset) for offset in offsets)
    # It ends where the next open one had no room.
    assert told == until or told in offsets


@given(windows())
def test_the_bound_is_never_below_the_length(window: tuple[list[int], int, int]) -> None:
    offsets, base, until = window
    text, _ = encode(offsets, base, until, PLENTY)
    assert len(text) <= bound(len(offsets), until - base)


@given(windows())
def test_what_the_bound_allows_is_not_cut(window: tuple[list[int], int, int]) -> None:
    offsets, base, until = window
    assert encode(offsets, base, until, bound(len(offsets), until - base)) == encode(
        offsets, base, until, PLENTY
    )


@given(windows(), st.integers(0, 2**62))
def test_the_map_answers_for_each_offset(window: tuple[list[int], int, int], position: int) -> None:
    offsets, base, until = window
    acks = AckMap(base, until, array("q", offsets))
    near = {base - 1, base, until - 1, until, position}.union(
        *({one - 1, one, one + 1} for one in offsets)
    )
    assert {one for one in near if acks.is_done(one)} == {
        one for one in near if base <= one < until and one not in offsets
    }
    middle = base + (until - base) // 2
    assert list(acks.open_between(middle, until)) == [one for one in offsets if one >= middle]
    assert list(acks.open_between(base, middle)) == [one for one in offsets if one < middle]


def test_a_person_can_read_how_it_begins() -> None:
    assert encode([100, 103], 100, 110, 50) == ("r1:2/10:IA", 110)


def test_the_page_about_offset_metadata_shows_a_whole_text() -> None:
    page = (Path(__file__).parents[2] / "docs" / "offset-metadata.md").read_text()
    (shown,) = re.findall(r"`(rk1 [^`]*)`", page)
    acks = AckMap(1, 50_001, array("q", [1]))
    assert metadata.decode(shown, 1) == metadata.Metadata("mine", acks=acks, topic="kTo5Xr2m")


# -- what others write


@given(
    st.text()
    | st.from_regex(r"r[0-9]{1,3}:[0-9]{1,6}/[0-9]{1,20}:[A-Za-z0-9+/]{0,60}", fullmatch=True)
)
def test_no_text_is_an_error(text: str) -> None:
    found = decode(text, 7)
    if found is not None:
        assert found.base == 7
        assert list(found.open) == sorted(set(found.open))
        assert all(7 <= offset < found.until for offset in found.open)


@given(windows(), st.data())
def test_a_text_that_lost_characters_tells_nothing_new(
    window: tuple[list[int], int, int], data: st.DataObject
) -> None:
    offsets, base, until = window
    text, _ = encode(offsets, base, until, PLENTY)
    cut = text[: data.draw(st.integers(0, max(0, len(text) - 1)))]
    assert decode(cut, base) is None or not offsets


@pytest.mark.parametrize(
    "text",
    [
        "",
        "r0:1/5",
        # An offset is missing.
        "r0:1/5:",
        # One of two is missing.
        "r0:2/5:/g",
        # Its rest is cut off.
        "r9:1/600:AA",
        # A byte too many.
        "r0:1/5:AAA",
        "r0:0/5:AA",
        # A blank.
        "r0:1/5:AA ",
        # Its open offset lies behind the end.
        "r0:1/1:gA",
        # Bits behind the last one are not zero.
        "r0:1/5:fA",
        # So many characters make no byte.
        "r0:1/5:A",
        "r0:1/5:AA==",
        "r00000:1/5:AA",
        "x0:1/5:AA",
        # No offset is so high.
        "r0:1/9223372036854775807:AA",
        "r0:1/99999999999999999999:AA",
        "r0:99999/99999:AA",
        "r٠:1/5:AA",
    ],
)
def test_what_is_not_whole_is_none_of_ours(text: str) -> None:
    assert decode("r0:1/5:AA", 7) == AckMap(7, 12, array("q", [7]))
    assert decode(text, 7) is None


def test_a_hostile_text_takes_no_more_than_its_own_size() -> None:
    ones = b64encode(b"\xff" * 24_000 + b"\x7f").decode()
    assert decode(f"r99:1/{2**62}:{ones}", 0) is None
    assert decode(f"r62:1/{2**62}:{ones}", 0) is None
    assert decode(f"r0:99999/{2**62}:{ones}", 0) is None


# -- sizes


def random_window(records: int, share_done: float) -> tuple[list[int], int, int]:
    draw, base = random.Random(1), 10**12
    return (
        [base + at for at in range(records) if at == 0 or draw.random() >= share_done],
        base,
        base + records,
    )


@pytest.mark.parametrize(
    ("records", "share_done", "most"),
    [(100_000, 0.99, 1_500), (200_000, 0.99, 2_900), (60_000, 0.90, 5_000), (24_000, 0.50, 4_050)],
)
def test_sizes_are_near_what_can_be(records: int, share_done: float, most: int) -> None:
    offsets, base, until = random_window(records, share_done)
    text, told = encode(offsets, base, until, PLENTY)
    assert (len(text) <= most, told) == (True, until)
    assert bound(len(offsets), until - base) <= 1.2 * len(text)


def test_one_straggler_takes_a_few_characters_however_far_the_others_are() -> None:
    text, told = encode([7], 7, 1_000_007, 20)
    assert told == 1_000_007
    assert bound(1, 1_000_000) <= 20
    assert decode(text, 7) == AckMap(7, 1_000_007, array("q", [7]))


def test_what_is_too_much_is_cut_and_most_of_it_kept() -> None:
    offsets, base, until = random_window(60_000, 0.5)
    text, told = encode(offsets, base, until, 4096)
    assert len(text) <= 4096
    # A bit an offset is all that can be.
    assert told - base >= 24_000


def test_of_more_open_offsets_than_ever_fit_the_first_are_enough() -> None:
    offsets, base, until = random_window(200_000, 0.5)
    first = offsets[:MOST_OPEN]
    assert encode(offsets, base, until, 4096) == encode(first, base, offsets[MOST_OPEN], 4096)
