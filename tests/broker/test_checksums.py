"""The checksum of batches, by whichever library: what aiokafka computes in Python."""

from __future__ import annotations

import google_crc32c.cext
from aiokafka.record._crc32c import crc as in_python
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.fetched.checksums import crc32c


@given(st.one_of(st.binary(max_size=99), st.builds(bytes, st.integers(0, 5_000))))
def test_both_libraries_compute_the_same(content: bytes) -> None:
    assert crc32c(content) == calc_crc32c(content) == in_python(content)


def test_the_library_is_used_where_it_is_installed() -> None:
    assert crc32c is google_crc32c.cext.value
