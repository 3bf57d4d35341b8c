"""What goes into a batch of aiokafka's, and which partition a key belongs to."""

from __future__ import annotations

from aiokafka.partitioner import murmur2
from hypothesis import example, given
from hypothesis import strategies as st

from reactive_kafka.broker.aiokafka.batches import java_hash


@given(st.binary(max_size=200))
@example(b"\xff" * 131)  # 32 words, and three bytes
@example(b"\xff" * 132)
def test_a_key_s_hash_is_that_of_the_client_s_own_partitioner(key: bytes) -> None:
    assert java_hash(key) == murmur2(key) & 0x7FFFFFFF


def test_a_key_s_hash_is_java_s() -> None:
    # Source: UtilsTest.testMurmur2 of Kafka's clients, which has the hashes with their sign.
    java = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
    assert {key: java_hash(key.encode()) for key in java} == {key: signed & 0x7FFFFFFF for key, signed in java.items()}
