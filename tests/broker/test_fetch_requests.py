"""Fetches as the client's own encoder writes them."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.struct import Struct
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.connecting import encoded
from reactive_kafka.broker.aiokafka.fetched.answers import VERSIONS

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.lists(st.tuples(INT32, INT64, INT32), max_size=4)
TOPICS = st.lists(st.tuples(st.text(max_size=5), PARTITIONS), max_size=3)
HEADS = st.tuples(INT32, INT32, INT32, st.sampled_from([0, 1]))


@pytest.mark.parametrize("version", sorted(VERSIONS))
@given(head=HEADS, topics=TOPICS, rack=st.text(max_size=5))
def test_it_is_what_the_client_itself_would_write(version: int, head: Any, topics: Any, rack: str) -> None:
    asked = FetchRequest(*head, topics, rack_id=rack).prepare({FetchRequest.API_KEY: (0, version)})
    assert type(asked).encode is encoded
    assert asked.encode() == Struct.encode(asked)
