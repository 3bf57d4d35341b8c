from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.config.kinds import (
    BOOLEAN,
    SERVERS,
    SIZE,
    SOME_TIME,
    TIME,
    TOPICS,
    Kind,
    choice,
    did_you_mean,
    integer,
    parse_duration,
    parse_size,
    show_duration,
    show_size,
)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("500ms", 0.5),
        ("5s", 5.0),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("1.5s", 1.5),
        ("0.1s", 0.1),
        (5, 5.0),
        (0.25, 0.25),
        (0, 0.0),
        ("1ms", 0.001),
        ("0.1ms", 0.001),
        (1e-7, 0.001),
        (5e-324, 0.001),
    ],
)
def test_a_duration_is_a_number_of_seconds_or_carries_its_unit(
    written: Any, seconds: float
) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    [
        "5",
        "5 sec",
        "s",
        "-5s",
        "5S",
        "",
        "5s 3ms",
        "9999999h",
        "1e3s",
        "٣s",
        None,
        True,
        [],
        -1,
        float("nan"),
        float("inf"),
        10**400,
    ],
)
def test_what_is_no_duration_is_refused(written: Any) -> None:
    with pytest.raises(ValueError, match='expected a duration: "500ms"'):
        TIME.parse(written)


def test_zero_is_a_duration_only_where_it_may_be() -> None:
    assert TIME.parse("0s") == 0.0
    with pytest.raises(ValueError, match="above 0"):
        SOME_TIME.parse("0ms")


@given(
    st.one_of(
        st.integers(0, 10**6).map(lambda ms: ms / 1000),
        st.sampled_from([0, 1000, 1001]).map(lambda us: us / 10**6),
        st.integers(1000, 10**12).map(lambda us: us / 10**6),
    )
)
def test_a_duration_that_is_shown_reads_back_as_the_same(seconds: float) -> None:
    assert parse_duration(show_duration(seconds)) == seconds


def test_a_duration_is_shown_with_its_largest_unit() -> None:
    shown = [show_duration(seconds) for seconds in (0.0, 0.2, 1.5, 60.0, 90.0, 7200.0)]
    assert shown == ["0s", "200ms", "1500ms", "1m", "90s", "2h"]


@pytest.mark.parametrize(
    ("written", "count"),
    [("64KiB", 65536), ("1MB", 10**6), ("1.5MiB", 3 * 2**19), (10, 10), ("7B", 7)],
)
def test_a_size_is_a_number_of_bytes_or_carries_its_unit(written: Any, count: int) -> None:
    assert parse_size(written) == count


@pytest.mark.parametrize("written", ["64", "1 mib", "-1KiB", "1.0001KiB", 1.5, True, None, 0])
def test_what_is_no_size_is_refused(written: Any) -> None:
    with pytest.raises(ValueError, match='expected a size: "64KiB"'):
        SIZE.parse(written)


@given(st.integers(0, 2**62))
def test_a_size_that_is_shown_reads_back_as_the_same(count: int) -> None:
    assert parse_size(show_size(count)) == count


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (BOOLEAN, "true"),
        (BOOLEAN, 1),
        (integer(1, 10), 0),
        (integer(1, 10), 11),
        (integer(1, 10), True),
        (integer(1, 10), 1.0),
        (integer(1, 10), "1"),
        (choice("a"), ["a"]),
        (TOPICS, []),
        (TOPICS, ["a", "a"]),
        (TOPICS, ["a b"]),
        (TOPICS, [["a"]]),
        (TOPICS, {"a": 1}),
        (SERVERS, ""),
        (SERVERS, []),
        (SERVERS, "host:0"),
        (SERVERS, "host:65536"),
        (SERVERS, "a:1,,b:2"),
        (SERVERS, "PLAINTEXT://host:9092"),
        (SERVERS, ["embedded", "host:1"]),
        (SERVERS, [1]),
    ],
)
def test_a_value_of_the_wrong_type_or_range_is_refused_with_what_is_expected(
    kind: Kind[Any], wrong: Any
) -> None:
    with pytest.raises(ValueError, match=r"^expected "):
        kind.parse(wrong)


def test_servers_come_as_a_list_or_with_commas() -> None:
    assert SERVERS.parse(["a:1", "b"]) == SERVERS.parse("a:1, b") == "a:1,b"
    assert SERVERS.parse("[::1]:9092") == "[::1]:9092"
    assert SERVERS.parse(["embedded"]) == SERVERS.parse("embedded") == "embedded"


def test_a_choice_is_spelled_exactly_and_says_what_was_probably_meant() -> None:
    kind = choice("throttled", "ignore")
    assert kind.parse("ignore") == "ignore"
    with pytest.raises(
        ValueError, match='one of "throttled", "ignore"; did you mean \'throttled\''
    ):
        kind.parse("Throttled")


def test_a_function_is_named_by_module_and_name() -> None:
    kind = choice("json", imported="module:function")
    assert kind.parse("my.module:Class.method") == "my.module:Class.method"
    for wrong in ("my.module", "my module:f", ":f", "m:", "m:f()"):
        with pytest.raises(ValueError, match="module:function"):
            kind.parse(wrong)


def test_the_nearest_name_is_found_whatever_its_separators() -> None:
    assert did_you_mean("comit-interval", ["commit_interval", "concurrency"]) == "commit_interval"
    assert did_you_mean("Session.Timeout", ["session_timeout_ms"]) == "session_timeout_ms"
    assert did_you_mean("xyz", ["commit_interval"]) is None
