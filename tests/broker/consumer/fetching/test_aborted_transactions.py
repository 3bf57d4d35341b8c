"""Which batches belong to aborted transactions, against the client's own reader."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.consumer.fetching.aborted_transactions import (
    AbortedTransactions,
    is_abort_marker,
)

PRODUCERS = (1, 2, 3)


@given(st.lists(st.tuples(st.sampled_from(PRODUCERS), st.booleans()), max_size=30))
def test_a_transaction_is_aborted_from_its_first_record_to_its_marker(
    steps: list[tuple[int, bool]],
) -> None:
    """Each step is a record of a producer, or the marker that ends what it has begun."""
    named: list[tuple[int, int]] = []
    begun: dict[int, int] = {}
    for offset, (producer, is_marker) in enumerate(steps):
        if not is_marker:
            begun.setdefault(producer, offset)
        elif producer in begun:
            named.append((producer, begun.pop(producer)))
    aborted = AbortedTransactions(reversed(named))
    for offset, (producer, is_marker) in enumerate(steps):
        aborted.reach(offset)
        if is_marker:
            aborted.end(producer)
        else:
            # What is open at the end may still be committed.
            is_open_at_the_end = offset >= begun.get(producer, len(steps))
            assert aborted.has(producer) is not is_open_at_the_end


@pytest.mark.parametrize(("kind", "is_abort"), [(0, True), (1, False)])
def test_the_type_of_a_marker_is_in_its_key(kind: int, is_abort: bool) -> None:
    assert is_abort_marker(struct.pack(">hh", 0, kind)) is is_abort
    with pytest.raises(struct.error):
        is_abort_marker(b"\0")
