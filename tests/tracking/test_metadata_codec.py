"""What stands beside a position: it comes back as it was written, and nothing that anybody wrote
there is an error.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.tracking.metadata import acks as ackmap
from reactive_kafka.tracking.metadata.codec import (
    LIMIT,
    Metadata,
    as_in_kafka,
    decode,
    encode,
    has_room,
    units,
    without_topic,
)
from reactive_kafka.tracking.plans import PlannedRange, Plans
from tests.spark.bisections import plans_of_a_deep_bisection

OFFSETS = st.integers(0, 2**62)


@st.composite
def plans_beyond(draw: st.DrawFn, position: int, *, most: int = 6) -> Plans:
    plans, at = [], position
    for gap, size in draw(
        st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50_000)), max_size=most)
    ):
        start, until = at + gap, at + gap + size
        outermost_last, outer = [], (start, until)
        for before, after in draw(
            st.lists(st.tuples(st.integers(0, 99), st.integers(1, 99)), max_size=3)
        ):
            outer = (max(0, outer[0] - before), outer[1] + after)
            outermost_last.append(outer)
        plans.append(PlannedRange(start, until, tuple(reversed(outermost_last))))
        at = until
    return tuple(plans)


@given(st.data(), OFFSETS, st.text(max_size=50))
def test_what_was_written_comes_back(data: st.DataObject, position: int, user: str) -> None:
    plans = data.draw(plans_beyond(position))
    assert decode(encode(position, plans, user), position) == Metadata(user, plans)


@given(OFFSETS, st.text(st.characters(codec="ascii"), max_size=9))
def test_a_string_that_looks_like_ours_comes_back(position: int, tail: str) -> None:
    for user in (
        f"rk1{tail}",
        f"rk2 {tail}",
        encode(position, (PlannedRange(position, position + 1),), tail),
    ):
        assert decode(encode(position, (), user), position) == Metadata(user)


def test_a_string_alone_goes_out_untouched() -> None:
    for user in ("", "offset 12 of the import", "{}", "rk", "rkx", "r k1"):
        assert encode(7, (), user) == user


def test_a_person_can_read_it() -> None:
    plans = (PlannedRange(100, 150), PlannedRange(150, 175, ((150, 300), (150, 200))))
    assert encode(100, plans, "hello") == "rk1 14af 100 31 5 100-150 150-175<150-300<150-200 hello"


@given(st.text(), OFFSETS)
def test_foreign_text_is_the_users(text: str, position: int) -> None:
    assert decode(text, position) == Metadata(text)


HEADERS = st.from_regex(
    r"rk[0-9]{1,3} [0-9a-f]{4} [0-9]{1,20} [0-9]{1,5} [0-9]{1,5} [0-9<\- ]{0,30}", fullmatch=True
)


@given(HEADERS, st.text(max_size=20), OFFSETS)
def test_no_text_is_an_error(header: str, tail: str, position: int) -> None:
    found = decode(header + tail, position)
    assert found.user in header + tail
    assert found.plans == () or found.plans[0].start >= position


@given(st.data(), OFFSETS, st.text(st.characters(codec="ascii"), max_size=20))
def test_a_text_that_was_changed_has_no_plans(
    data: st.DataObject, position: int, user: str
) -> None:
    plans = data.draw(plans_beyond(position).filter(bool))
    text = encode(position, plans, user)
    at = data.draw(st.integers(0, len(text) - 1))
    new = data.draw(st.characters(codec="ascii"))
    changed = text[:at] + new + text[at + 1 :]
    if changed != text:
        assert decode(changed, position).plans == ()


@given(st.data(), OFFSETS, st.text(max_size=20))
def test_a_text_that_was_cut_off_has_no_plans(
    data: st.DataObject, position: int, user: str
) -> None:
    text = encode(position, data.draw(plans_beyond(position).filter(bool)), user)
    cut = data.draw(st.integers(0, len(text) - 1))
    assert decode(text[:cut], position).plans == ()


def test_a_plan_belongs_to_its_position() -> None:
    text = encode(100, (PlannedRange(100, 150),), "mine")
    for moved in (0, 99, 101, 150):
        assert decode(text, moved) == Metadata("mine", lost="it belongs to position 100")


def test_the_users_string_can_be_read_in_later_versions() -> None:
    later = encode(100, (PlannedRange(100, 150),), "mine").replace("rk1 ", "rk2 ") + " more"
    assert decode(later, 100) == Metadata("mine", lost="version 2 is not known")


@pytest.mark.parametrize(
    "planned", ["50-60", "100-100", "120-130 110-120", "100-120<100-120", "100-", "x", "100-110  "]
)
def test_plans_that_are_none_are_lost_and_the_users_string_is_kept(planned: str) -> None:
    # As another program would write it.
    from reactive_kafka.tracking.metadata.codec import _crc

    covered = f"100 {len(planned)} 4 {planned} mine"
    assert decode(f"rk1 {_crc(covered)} {covered}", 100) == Metadata(
        "mine", lost="it cannot be read"
    )


def test_what_is_kept_behind_the_users_string_is_not_part_of_it() -> None:
    from reactive_kafka.tracking.metadata.codec import _crc

    covered = "100 7 4 100-150 mine AbC="
    lost = Metadata("mine", (PlannedRange(100, 150),), lost="it cannot be read")
    assert decode(f"rk1 {_crc(covered)} {covered}", 100) == lost


# -- the topic's id

IDS = st.sampled_from(["kTo5Xr2mQf6-_wA1bC3dEf", "id-1", ""])
ACKS = ackmap.encode([7], 5, 40, 4096)[0]


@given(st.data(), st.text(max_size=50), IDS)
def test_the_topic_is_told_by_the_beginning_of_its_id(
    data: st.DataObject, user: str, topic: str
) -> None:
    plans = data.draw(plans_beyond(5))
    for acks in ("", ACKS):
        text = encode(5, plans, user, acks, topic=topic)
        assert decode(text, 5) == Metadata(
            user, plans, None, ackmap.decode(acks, 5) if acks else None, topic[:8]
        )
        assert without_topic(text, 5) == encode(5, plans, user, acks)
        assert as_in_kafka(text, 5) == (text if plans or acks else encode(5, (), user))


@given(st.text(), OFFSETS)
def test_without_a_topic_of_ours_a_text_stays_as_it_is(text: str, position: int) -> None:
    assert without_topic(text, position) == as_in_kafka(text, position) == text


def test_the_topic_is_left_out_before_the_users_string_is() -> None:
    topic, acks = "kTo5Xr2m", ACKS
    whole = units(encode(5, (), "mine", acks, topic=topic))
    assert decode(encode(5, (), "mine", acks, topic=topic, limit=whole - 1), 5) == Metadata(
        "mine", topic=topic
    )
    assert encode(5, (), "mine", topic=topic, limit=10) == "mine"
    assert encode(5, (), "mine", topic=topic, limit=3) == ""


# -- bounded


@given(st.data(), st.integers(0, 200), st.text(max_size=5), st.integers(0, 1200))
def test_what_does_not_fit_is_left_out_from_the_end(
    data: st.DataObject, many: int, user: str, times: int
) -> None:
    position = data.draw(OFFSETS)
    plans = tuple(PlannedRange(position + at, position + at + 1) for at in range(many))
    users = user * times
    text = encode(position, plans, users)
    if not plans and not users.startswith("rk"):
        assert text == (users if units(users) <= LIMIT else "")
        return
    assert units(text) <= LIMIT
    found = decode(text, position)
    assert found.plans == plans[: len(found.plans)]
    assert found.plans or not plans
    assert found.user in ("", users)
    if found.plans != plans:
        assert found.user == ""
        assert not has_room(position, found.plans, plans[len(found.plans)])


def test_the_users_string_is_kept_up_to_the_limit_and_no_longer() -> None:
    planned = (PlannedRange(0, 1),)
    room = LIMIT - len("rk1 0000 0 3 4096 0-1 ")
    assert units(encode(0, planned, "x" * room)) == LIMIT
    assert decode(encode(0, planned, "x" * room), 0) == Metadata("x" * room, planned)
    assert decode(encode(0, planned, "x" * (room + 1)), 0) == Metadata("", planned)


def test_characters_beyond_the_basic_plane_count_twice() -> None:
    user = "𝄞" * 2030
    assert len(user) < LIMIT - 30
    planned = (PlannedRange(0, 1),)
    assert units(encode(0, planned, user)) == len("rk1 0000 0 3 2030 0-1 ") + 2 * 2030
    assert decode(encode(0, planned, user + "𝄞" * 30), 0) == Metadata("", planned)


def test_the_first_plan_always_fits() -> None:
    start, until = 10**18, 10**18 + 10**6
    failed = tuple((start, until - at) for at in range(500))
    planned = PlannedRange(start, start + 1, failed)
    found = decode(encode(start, (planned, PlannedRange(start + 1, start + 2)), "x" * 4096), start)
    assert found.user == ""
    (first,) = found.plans
    assert first[:2] == planned[:2]
    assert first.failed == failed[: len(first.failed)]
    assert len(first.failed) > 50


@pytest.mark.parametrize(("records", "deep"), [(50_000, 16), (1_000_000, 20)])
def test_all_that_a_deep_bisection_has_left_fits(records: int, deep: int) -> None:
    start = 9_000_000_000
    plans = plans_of_a_deep_bisection(start, records)
    assert (len(plans), len(plans[0].failed)) == (1 + deep, deep)
    text = encode(start, plans)
    assert units(text) <= LIMIT
    assert decode(text, start) == Metadata("", plans)


@pytest.mark.parametrize("text", ["rk1 680e 0 4", "rk1 not hex", "rk1 "])
def test_what_begins_as_ours_and_is_cut_off_is_lost_and_nobodys_text(text: str) -> None:
    assert decode(text, 0) == Metadata(user="", lost="it was changed or cut off")
