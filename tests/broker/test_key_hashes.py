"""Keys land where the producers of other clients put them."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2
from hypothesis import example, given
from hypothesis import strategies as st

from reactive_kafka.broker.key_hashes import KEY_HASHES, java_hash


@given(st.binary(max_size=200))
# 32 words, and three bytes.
@example(b"\xff" * 131)
@example(b"\xff" * 132)
def test_a_key_s_hash_is_that_of_the_client_s_own_partitioner(key: bytes) -> None:
    assert java_hash(key) == murmur2(key) & 0x7FFFFFFF


def test_a_key_s_hash_is_java_s() -> None:
    # Source: UtilsTest.testMurmur2 of Kafka's clients, which has the hashes with their sign.
    java = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
    assert {key: java_hash(key.encode()) for key in java} == {
        key: signed & 0x7FFFFFFF for key, signed in java.items()
    }


@pytest.mark.parametrize(
    ("key", "crc32", "murmur2"),
    [
        # Source: tests/0048-partitioner.c of librdkafka, which has them of the command crc32 and of
        # Java's clients.
        (b"23456", 0xB1B451D7, 0x058D780F),
        (b"this is another string with more length to it perhaps", 0xB0150DF7, 0x4F7703DA),
        (b"hejsan", 0xD077037E, 0x5EC19395),
        (b"", 0, 0x106E08D9),
    ],
)
def test_the_hashes_are_those_of_librdkafka(key: bytes, crc32: int, murmur2: int) -> None:
    assert KEY_HASHES["crc32"].hash(key) == crc32
    assert KEY_HASHES["murmur2"].hash(key) == murmur2
