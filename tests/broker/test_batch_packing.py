"""What goes into a batch of aiokafka's."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.batch_packing import pack_batch
from reactive_kafka.records import RecordBytes

MOST_BYTES = 1_000


@dataclass
class Client:
    """What is asked of a producer of aiokafka's."""

    _max_request_size: int = MOST_BYTES
    _txn_manager: Any = None
    _message_accumulator: Any = field(default_factory=lambda: SimpleNamespace(_compression_type=0))


small = st.none() | st.binary(max_size=200)
records = st.builds(
    RecordBytes,
    small,
    small,
    st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), small), max_size=2).map(
        tuple
    ),
    st.integers(0, 2**41),
)


@given(st.lists(records, min_size=1, max_size=12), st.sampled_from([None, "orders-1"]))
def test_a_batch_is_what_the_client_s_own_builder_makes_of_the_records_that_fit(
    given_records: list[RecordBytes], transactional_id: str | None
) -> None:
    client = Client(_txn_manager=SimpleNamespace(transactional_id=transactional_id))
    theirs = BatchBuilder(MOST_BYTES, 0, is_transactional=transactional_id is not None)
    for value, key, headers, timestamp_ms in given_records:
        if (
            theirs.append(timestamp=timestamp_ms, key=key, value=value, headers=list(headers))
            is None
        ):
            break
    ours = pack_batch(client, given_records, MOST_BYTES)
    assert (ours.record_count(), ours.size(), ours.closed()) == (
        theirs.record_count(),
        theirs.size(),
        True,
    )
    assert bytes(ours._build()) == bytes(theirs._build())


@given(st.integers(1, 3))
def test_a_record_that_can_never_be_ends_the_batch_before_it_and_is_told_when_it_is_the_first(
    fine: int,
) -> None:
    wrong: Any = RecordBytes("no bytes")  # type: ignore[arg-type]
    assert (
        pack_batch(
            Client(), [*[RecordBytes(b"x")] * fine, wrong, RecordBytes(b"y")], MOST_BYTES
        ).record_count()
        == fine
    )
    with pytest.raises(TypeError):
        pack_batch(Client(), [wrong], MOST_BYTES)
