"""Fetches as the client's own encoder writes them."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.struct import Struct
from hypothesis import given
from hypothesis import strategies as st

import reactive_kafka.broker.aiokafka.connection_patches  # noqa: F401
from reactive_kafka.broker.aiokafka.fetched.fetch_session import FULL, FetchSession
from reactive_kafka.broker.aiokafka.fetched.request_encoding import encode_fetch
from reactive_kafka.broker.aiokafka.fetched.response_decoding import VERSIONS

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.lists(st.tuples(INT32, INT64, INT32), max_size=4)
TOPICS = st.lists(st.tuples(st.text(max_size=5), PARTITIONS), max_size=3)
HEADS = st.tuples(INT32, INT32, INT32, st.sampled_from([0, 1]))


@pytest.mark.parametrize("version", sorted(VERSIONS))
@given(head=HEADS, topics=TOPICS, rack=st.text(max_size=5))
def test_it_is_what_the_client_itself_would_write(
    version: int, head: Any, topics: Any, rack: str
) -> None:
    asked = FetchRequest(*head, topics, rack_id=rack).prepare({FetchRequest.API_KEY: (0, version)})
    assert type(asked).encode is encode_fetch
    assert asked.encode() == Struct.encode(asked)


WITH_SESSIONS = sorted(version for version in VERSIONS if version >= 7)


def in_session(
    session: FetchSession, version: int, parts: dict[str, dict[int, int]], *, anew: bool = False
) -> Any:
    """A fetch of *parts* (topic -> partition -> offset), as it goes over the connection of
    *session*.
    """
    topics = [
        (topic, [(number, offset, 9) for number, offset in one.items()])
        for topic, one in parts.items()
    ]
    request: Any = FetchRequest(500, 1, 99, 1, topics, rack_id="here")
    request.session, request.full = session, anew
    request.asks = frozenset((topic, *one) for topic, found in topics for one in found)
    return request.prepare({FetchRequest.API_KEY: (0, version)})


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_in_a_session_it_names_what_has_changed_and_what_is_over(version: int) -> None:
    session, epoch = FetchSession(), (-1,) if version >= 9 else ()
    first = in_session(session, version, {"orders": {0: 5, 1: 5}, "clicks": {7: 1, 8: 1}})
    assert (first.session_id, first.session_epoch, first.forgotten_topics_data) == (0, FULL, [])
    assert dict(first.topics) == {
        "orders": [(0, *epoch, 5, -1, 9), (1, *epoch, 5, -1, 9)],
        "clicks": [(7, *epoch, 1, -1, 9), (8, *epoch, 1, -1, 9)],
    }
    session.answered(first.asked, 0, 77)
    then = in_session(session, version, {"orders": {0: 5, 1: 6}})
    assert (then.session_id, then.session_epoch, then.topics) == (
        77,
        1,
        [("orders", [(1, *epoch, 6, -1, 9)])],
    )
    assert then.forgotten_topics_data == [("clicks", [7, 8])]
    for asked in (first, then):
        assert (asked.max_wait_time, asked.min_bytes, asked.max_bytes, asked.isolation_level) == (
            500,
            1,
            99,
            1,
        )
        assert getattr(asked, "rack_id", "here") == "here"
        assert asked.encode() == Struct.encode(asked)


@pytest.mark.parametrize("version", sorted(VERSIONS - set(WITH_SESSIONS)))
def test_before_there_were_sessions_it_names_all(version: int) -> None:
    session = FetchSession()
    for _ in range(2):
        asked = in_session(session, version, {"orders": {0: 5}})
        assert asked.topics == [("orders", [(0, 5, 9)] if version == 4 else [(0, 5, -1, 9)])]
        assert not hasattr(asked, "session")
