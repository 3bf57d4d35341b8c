"""Fetches as Kafka's definitions say, and what they name within a session."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.consumer.fetching.fetch_session import FULL, FetchSession, SessionFetch
from reactive_kafka.broker.consumer.fetching.node_fetch import AskedPartition, NodeFetch
from reactive_kafka.broker.consumer.fetching.read_partition import ReadPartition
from reactive_kafka.broker.consumer.fetching.request_encoding import (
    VERSIONS,
    FetchLimits,
    encode_fetch,
)
from reactive_kafka.broker.wire import codec
from reactive_kafka.broker.wire.definitions import FETCH
from reactive_kafka.broker.wire.errors import NoCommonVersionError
from reactive_kafka.records import TopicPartition

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=5)
NAMED = st.lists(st.tuples(NAMES, INT32, INT64, INT32), max_size=6)
LIMITS = st.builds(FetchLimits, INT32, INT32, INT32, st.sampled_from([0, 1]), NAMES)
SESSIONS = st.builds(
    SessionFetch, INT32, INT32, st.none(), st.lists(st.tuples(NAMES, INT32), max_size=4).map(tuple)
)
WITH_SESSIONS = sorted(version for version in VERSIONS if version >= 7)


def decoded(content: bytes, version: int) -> dict[str, Any]:
    return codec.decode(FETCH.request, version, content)


@pytest.mark.parametrize("version", sorted(VERSIONS))
@given(limits=LIMITS, session=SESSIONS, named=NAMED)
def test_a_fetch_is_what_the_definitions_say(
    version: int, limits: FetchLimits, session: SessionFetch, named: list[Any]
) -> None:
    values = decoded(encode_fetch(version, limits, session, named), version)
    assert (
        values["max_wait_ms"],
        values["min_bytes"],
        values["max_bytes"],
        values["isolation_level"],
    ) == limits[:4]
    assert values["replica_id"] == -1
    found = [
        (
            topic["topic"],
            row["partition"],
            row["fetch_offset"],
            row["partition_max_bytes"],
        )
        for topic in values["topics"]
        for row in topic["partitions"]
    ]
    in_topics = {name: [row for row in named if row[0] == name] for name, *_ in named}
    assert found == [row for rows in in_topics.values() for row in rows]
    if version >= 7:
        assert (values["session_id"], values["session_epoch"]) == session[:2]
        forgotten = [
            (topic["topic"], number)
            for topic in values["forgotten_topics_data"]
            for number in topic["partitions"]
        ]
        assert sorted(forgotten) == sorted(session.forgotten)
    if version >= 11:
        assert values["rack_id"] == limits.rack


def fetch_of(offsets: dict[tuple[str, int], int]) -> NodeFetch:
    rows = [(topic, number, offset, 9) for (topic, number), offset in offsets.items()]
    asked = {
        TopicPartition(*name): AskedPartition(ReadPartition(TopicPartition(*name), 1), offset)
        for name, offset in offsets.items()
    }
    return NodeFetch(1, asked, rows, FetchLimits(500, 1, 99, 1, "here"))


def sent(fetch: NodeFetch, version: int, session: FetchSession) -> dict[str, Any]:
    """The fields of a fetch, as it goes over the connection of a session."""
    fetch.session = session
    return decoded(fetch.prepare({FETCH.key: (0, version)}).encode(), version)


def named_in(values: dict[str, Any]) -> dict[tuple[str, int], int]:
    return {
        (topic["topic"], row["partition"]): row["fetch_offset"]
        for topic in values["topics"]
        for row in topic["partitions"]
    }


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_in_a_session_it_names_what_has_changed_and_what_is_over(version: int) -> None:
    session = FetchSession()
    first = fetch_of({("orders", 0): 5, ("orders", 1): 5, ("clicks", 7): 1, ("clicks", 8): 1})
    first.session = session
    prepared = first.prepare({FETCH.key: (0, version)})
    values = decoded(prepared.encode(), version)
    assert (values["session_id"], values["session_epoch"]) == (0, FULL)
    assert len(named_in(values)) == 4
    # No partitions: throttle time, error, session, count.
    prepared.read_answer(memoryview(bytes(10) + (77).to_bytes(4, "big") + bytes(4)))
    values = sent(fetch_of({("orders", 0): 5, ("orders", 1): 6}), version, session)
    assert (values["session_id"], values["session_epoch"]) == (77, 1)
    assert named_in(values) == {("orders", 1): 6}
    assert [(one["topic"], one["partitions"]) for one in values["forgotten_topics_data"]] == [
        ("clicks", [7, 8])
    ]


@pytest.mark.parametrize("version", sorted(VERSIONS - set(WITH_SESSIONS)))
def test_before_there_were_sessions_it_names_all(version: int) -> None:
    session = FetchSession()
    for _ in range(2):
        assert named_in(sent(fetch_of({("orders", 0): 5}), version, session)) == {("orders", 0): 5}


@pytest.mark.parametrize(
    ("versions", "expected"), [((0, 17), 11), ((4, 17), 11), ((0, 8), 8), ((0, 4), 4)]
)
def test_it_goes_out_in_the_highest_version_that_both_have(
    versions: tuple[int, int], expected: int
) -> None:
    assert expected == fetch_of({("orders", 0): 5}).prepare({FETCH.key: versions}).API_VERSION


@pytest.mark.parametrize("versions", [{}, {FETCH.key: (0, 3)}, {FETCH.key: (12, 17)}])
def test_a_broker_without_a_version_of_ours_is_named(versions: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(NoCommonVersionError, match="this client needs 4-11"):
        fetch_of({("orders", 0): 5}).prepare(versions)
