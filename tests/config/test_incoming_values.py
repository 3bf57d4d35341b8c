from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.config.incoming_kinds import (
    ASSIGN,
    ORDERING_KEY,
    PATTERN,
    RATE,
    RETRY_TOPICS,
    Assigned,
    AssignedPartition,
    AssignedTopic,
    ranges_of,
    retry_delay_ms,
    time_ranges_of,
)
from tests.config.loading import incoming, loaded, only_problem

TOPIC_NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(
    lambda name: name not in (".", "..")
)
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.datetimes(datetime(1970, 1, 2), datetime(9000, 1, 1), timezones=ZONES)
STARTS = st.none() | st.just("end") | st.integers(0, 2**63 - 1) | TIMES
PARTITIONS = st.builds(TopicPartition, TOPIC_NAMES, st.integers(0, 2**31 - 1))
ASSIGNED = st.lists(
    st.builds(AssignedPartition, partition=PARTITIONS, start=STARTS),
    min_size=1,
    unique_by=lambda item: item.partition,
)


@given(ASSIGNED)
def test_partitions_are_read_back_as_they_are_shown(assigned: list[AssignedPartition]) -> None:
    spelled = ASSIGN.show(tuple(assigned))
    assert ASSIGN.parse(spelled) == ASSIGN.parse(",".join(spelled)) == tuple(assigned)


@given(ASSIGNED)
def test_partitions_show_in_errors_as_they_are_written_though_a_time_looks_like_a_user(
    assigned: list[AssignedPartition],
) -> None:
    spelled = ASSIGN.show((assigned[0],))
    line = only_problem(incoming(assign=spelled, topic="other"))
    assert f"assign = {[*spelled]!r}"[:70] in line


@pytest.mark.parametrize(
    ("written", "per_second", "shown"),
    [
        ("100/s", 100.0, "100/s"),
        (" 0.50 / s ", 0.5, "0.5/s"),
        ("30/m", 0.5, "30/m"),
        ("1/h", 1 / 3600, "1/h"),
        ("1000000/s", 1e6, "1000000/s"),
    ],
)
def test_a_rate_is_so_many_records_in_a_second_a_minute_or_an_hour(
    written: str, per_second: float, shown: str
) -> None:
    rate = RATE.parse(written)
    assert (rate.per_second, RATE.show(rate), RATE.parse(shown)) == (per_second, shown, rate)
    assert loaded(incoming(rate_limit=written)).incoming["orders"].rate_limit == rate


@pytest.mark.parametrize(
    "written", ["0/s", "0.0/m", "-1/s", "100", 100, "100/d", "/s", "1e3/s", "1/2s", True, ""]
)
def test_what_is_no_rate_is_refused_with_what_is_one(written: object) -> None:
    assert "rate_limit" in only_problem(incoming(rate_limit=written))
    assert "above 0" in only_problem(incoming(rate_limit=written))


def test_the_contracts_forms_of_assign_say_where_reading_begins() -> None:
    spelled = ["t:0:100", "t:1:-1", "t:2:0", "t:3", "t:4@2026-11-21T00:00:00Z"]
    starts = [100, "end", 0, None, datetime(2026, 11, 21, tzinfo=UTC)]
    expected = tuple(
        # A mixed list.
        AssignedPartition(partition=TopicPartition("t", number), start=start)  # type: ignore[arg-type]
        for number, start in enumerate(starts)
    )
    settings = loaded(incoming(assign=spelled)).incoming["orders"]
    assert (settings.assign, settings.topics, settings.pattern) == (expected, (), None)
    environ = {"REACTIVE_KAFKA__INCOMING__ORDERS__ASSIGN": ", ".join(spelled)}
    assert loaded(incoming(), environ).incoming["orders"].assign == expected


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ([], ""),
        (3, ""),
        ([3], ""),
        ("", "'' cannot be read"),
        (["3"], "'3' cannot be read"),
        # A topic called 3.
        (["3:100"], None),
        (["t"], "'t' cannot be read"),
        (["t:x"], "'t:x' cannot be read"),
        (["t:0:-2"], "'t:0:-2' cannot be read"),
        (["t:-1"], "'t:-1' cannot be read"),
        (["t:0:1:2"], "'t:0:1:2' cannot be read"),
        (["a:b:0"], "'a:b:0' cannot be read"),
        (["..:0"], "'..:0' cannot be read"),
        (["t:2147483648"], "'t:2147483648' cannot be read"),
        (["t:0:9223372036854775808"], "the offset of 't:0:9223372036854775808' is too large"),
        (["t:0:1@2026-11-21T00:00:00Z"], "cannot be read"),
        (
            ["t:0@2026-11-21T00:00:00"],
            "the time of 't:0@2026-11-21T00:00:00' has no zone: add Z, or an offset",
        ),
        (["t:0@2026-11-21"], "has no zone"),
        (["t:0@1969-12-31T23:59:59Z"], "is before 1970"),
        (["t:0@soon"], "cannot be read"),
        (["t:0:1", "t:0:2"], "t:0 is here twice, and not each time with a range"),
        (["t:00", "t:0"], "t:0 is here twice, and not each time with a range"),
        (["t:0:1", "t:0:5..6"], "t:0 is here twice, and not each time with a range"),
        (["t:*", "t:*"], "t:* is here twice"),
        (["t:*@2026-11-21T00:00:00Z"], "'t:*@2026-11-21T00:00:00Z' has one time"),
        (["t:*@2026-11-21T00:00:00Z..2026-11-22T00:00:00"], "has no zone"),
        (["t:*@2026-11-22T00:00:00Z..2026-11-21T00:00:00Z"], "ends before it begins"),
        (["t:0@2026-11-21T00:00:00Z..2026-11-21T01:00:00+01:00"], "or is empty"),
        (["t:0@2026-11-21T00:00:00Z.."], "cannot be read"),
        (["t:0@2026-11-21T00:00:00Z...2026-11-22T00:00:00Z"], "cannot be read"),
        (
            ["t:0@2026-11-21T00:00:00Z..2026-11-22T00:00:00Z", "t:0:1..2"],
            "t:0 is here twice, and not each time with a range",
        ),
        (
            ["t:0:1..2", "t:*@2026-11-21T00:00:00Z..2026-11-22T00:00:00Z"],
            "t:* includes partition 0 already",
        ),
        (["t:0:1..3", "t:*"], "t:* includes partition 0 already"),
        (["t:*:5"], "'t:*:5' cannot be read"),
        (["t:0:-1..3"], "'t:0:-1..3' cannot be read"),
        (["t:0:..3"], "'t:0:..3' cannot be read"),
        (["t:0:3.."], "'t:0:3..' cannot be read"),
        (["t:0:1..9223372036854775808"], "the offset of 't:0:1..9223372036854775808' is too large"),
        (["t:0:200..100"], "of t:0 the range 200..100 ends before it begins"),
        (["t:0:100..100"], "of t:0 the range 100..100 is empty"),
        (["t:0:500..510", "t:0:100..200"], "of t:0 the range 100..200 comes after 500..510"),
        (
            ["t:0:100..200", "t:0:199..210"],
            "of t:0 the range 199..210 begins before the end of 100..200",
        ),
        (["t:0:100..200", "t:0:100..200"], "the range 100..200 begins before the end of 100..200"),
    ],
)
def test_partitions_that_cannot_be_read_name_the_form(written: object, said: str | None) -> None:
    if said is None:
        ASSIGN.parse(written)
        return
    with pytest.raises(
        ValueError, match=r'^expected a list of partitions, each once: "topic:0:100"'
    ) as raised:
        ASSIGN.parse(written)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "item",
    [
        "orders:*@soon..now",
        "orders:*@2026-13-01T00:00:00Z..2026-12-01T00:00:00Z",
        "orders:0@time",
        "my_topic:3@now",
        "orders:1@2026",
        "orders:0@2026-13-01",
        "o:0@-1",
    ],
)
@pytest.mark.parametrize("is_listed", [True, False])
def test_an_item_whose_time_cannot_be_read_is_shown_as_it_stands(
    item: str, is_listed: bool
) -> None:
    line = only_problem(
        {"incoming": {"orders": {"group_id": "g", "assign": [item] if is_listed else item}}}
    )
    assert f"the time of {item!r} cannot be read" in line
    assert "***" not in line
    assert line.count(item) == 2


def test_the_user_of_a_url_is_not_shown_in_assign_either() -> None:
    line = only_problem(
        {"incoming": {"orders": {"group_id": "g", "assign": ["kafka://admin:hunter2@broker:9092"]}}}
    )
    assert "hunter2" not in line


BOUNDS = st.lists(st.integers(0, 2**63 - 1), min_size=2, max_size=8, unique=True).map(sorted)


@given(st.dictionaries(PARTITIONS, BOUNDS, min_size=1, max_size=3))
def test_ranges_and_whole_topics_are_read_back_as_they_are_shown(
    bounds: dict[TopicPartition, list[int]],
) -> None:
    pairs = {one: list(zip(its[::2], its[1::2], strict=False)) for one, its in bounds.items()}
    assigned: list[Assigned] = [
        AssignedPartition(partition=one, start=start, until=until)
        for one, its in pairs.items()
        for start, until in its
    ]
    assigned.append(AssignedTopic(topic="another." + "x" * 241))
    start, until = datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, 1, 2, 3, tzinfo=UTC)
    assigned.append(AssignedTopic(topic="times", start=start, until=until))
    one_of_them = TopicPartition("times-of-one", 3)
    assigned.append(AssignedPartition(partition=one_of_them, start=start, until=until))
    spelled = ASSIGN.show(tuple(assigned))
    assert ASSIGN.parse(spelled) == ASSIGN.parse(",".join(spelled)) == tuple(assigned)
    assert {one: list(its.pairs) for one, its in ranges_of(assigned).items()} == pairs
    times = (start, until)
    assert time_ranges_of(assigned) == {"times": times, one_of_them: times}


def test_ranges_alone_need_no_group_and_commit_nothing_without_one() -> None:
    tables: dict[str, Any] = {
        "incoming": {"orders": {"assign": ["orders:0:100..200", "orders:1:17..18"]}}
    }
    settings = loaded(tables).incoming["orders"]
    assert (settings.group_id, settings.commit_strategy) == (None, "ignore")
    tables["incoming"]["orders"]["group_id"] = "replay"
    assert loaded(tables).incoming["orders"].commit_strategy == "throttled"
    tables["incoming"]["orders"] = {"assign": ["orders:0:100..200", "orders:1:17"]}
    assert "group_id is missing" in only_problem(tables)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"commit_strategy": "latest"},
            "orders-0 has holes between its ranges, and commit_strategy = 'latest' would",
        ),
        ({"keep_out_of_order_acks": True}, "and keep_out_of_order_acks = True would pass them"),
        ({"spark": {"mode": "ranges"}}, "and spark.mode = 'ranges' would pass them"),
    ],
)
def test_what_stores_positions_behind_a_hole_does_not_go_with_ranges_that_have_holes(
    settings: dict[str, Any], said: str
) -> None:
    def tables(*assign: str) -> dict[str, Any]:
        return {"incoming": {"orders": {"assign": list(assign), "group_id": "replay", **settings}}}

    assert said in only_problem(tables("orders:0:100..200", "orders:0:500..510"))
    # No hole.
    loaded(tables("orders:0:100..200", "orders:0:200..510", "orders:1:1..2"))


@pytest.mark.parametrize(
    "stream", [{"topic": "orders"}, {"pattern": "ord.*"}, {"assign": ["orders:3"]}]
)
def test_ranges_are_not_read_in_the_group_of_another_channel(stream: dict[str, Any]) -> None:
    replay = {"assign": ["refunds:1:2..4", "orders:0:100..200"], "group_id": "billing"}
    tables = {"incoming": {"stream": {"group_id": "billing", **stream}, "replay": replay}}
    line = only_problem(tables)
    assert "[incoming.replay]" in line
    assert "channel 'stream' has the same group and also reads 'orders'" in line
    assert "give the ranges a group of their own, or none" in line
    loaded({"incoming": {**tables["incoming"], "replay": {**replay, "group_id": "replay"}}})
    loaded(
        {"incoming": {**tables["incoming"], "stream": {"group_id": "billing", "topic": "payments"}}}
    )


def test_a_user_in_a_url_is_not_shown_where_a_partition_was_expected() -> None:
    line = only_problem(incoming(assign=["kafka://u:canary@host:1"]))
    assert "canary" not in line


def test_a_pattern_has_to_be_a_regular_expression() -> None:
    assert PATTERN.parse("orders-(eu|us)-.*") == "orders-(eu|us)-.*"
    for wrong, said in {
        "a(": "at position 1",
        "*": "at position 0",
        "a{99999999999}": "too large",
        " ": "",
        "": "",
    }.items():
        with pytest.raises(
            ValueError, match=r"^expected a regular expression that matches whole"
        ) as raised:
            PATTERN.parse(wrong)
        assert said in str(raised.value)


def test_an_ordering_key_is_a_header_or_a_function() -> None:
    for fine in ("header:tenant", "header:x-tenant id", "my.module:Class.method"):
        assert ORDERING_KEY.parse(fine) == fine
    for wrong in ("header:", "header: ", "tenant", "a:b()", "", None):
        with pytest.raises(
            ValueError, match=r'^expected "header:NAME" or "module:function" of the raw record$'
        ):
            ORDERING_KEY.parse(wrong)


@given(TOPIC_NAMES, st.integers(1, 10**12 - 1))
def test_a_retry_topics_delay_is_the_number_after_its_last_underscore(
    name: str, delay: int
) -> None:
    assert retry_delay_ms(f"{name}_{delay}") == delay


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["orders_retry"], "'orders_retry' does not"),
        (["a_1", "orders_0"], "'orders_0' does not"),
        (["orders_-5"], "'orders_-5' does not"),
        (["orders_5s"], "'orders_5s' does not"),
        (["orders-10000"], "'orders-10000' does not"),
        (["a_1", "a_1"], ""),
        ([], ""),
        (["a b_1"], ""),
    ],
)
def test_retry_topics_without_a_delay_or_twice_are_refused(wrong: list[str], said: str) -> None:
    with pytest.raises(
        ValueError, match=r"^expected a list of different topics, each ending in"
    ) as raised:
        RETRY_TOPICS.parse(wrong)
    assert said in str(raised.value)
