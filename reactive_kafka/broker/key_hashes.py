"""The hashes by which Kafka's clients choose the partition of a key. No I/O."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF
# Unpackers of the words in a key, for the usual lengths of keys.
_WORDS = [Struct(f"<{count}I").unpack_from for count in range(33)]


def java_hash(key: bytes) -> int:
    """Return the Murmur2 hash without sign: modulo the partitions it is what Java's producer uses.

    Source: ``Utils.murmur2`` and ``BuiltInPartitioner.partitionForKey`` of Kafka's clients.
    """
    count = len(key) >> 2
    value = _SEED ^ len(key)
    unpack_words = _WORDS[count] if count < len(_WORDS) else Struct(f"<{count}I").unpack_from
    for word in unpack_words(key):
        word = word * _FACTOR & _MASK
        value = (value * _FACTOR ^ (word ^ word >> 24) * _FACTOR) & _MASK
    if rest := len(key) & 3:
        value = (value ^ int.from_bytes(key[-rest:], "little")) * _FACTOR & _MASK
    value = (value ^ value >> 13) * _FACTOR & _MASK
    return (value ^ value >> 15) & 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class KeyHash:
    """How a client of Kafka's chooses partitions by key."""

    # Key -> a number; its remainder by the number of partitions is the partition.
    hash: Callable[[bytes], int]
    # An empty key chooses a partition as all others do. Otherwise it counts as none.
    hashes_empty_keys: bool


KEY_HASHES = {
    "murmur2": KeyHash(java_hash, hashes_empty_keys=True),
    "crc32": KeyHash(zlib.crc32, hashes_empty_keys=False),
}
"""Name of a ``partitioner`` -> what it does.

``murmur2`` is that of Java's clients, of kafka-python and of aiokafka. ``crc32`` is
``consistent_random``, librdkafka's default: an empty key goes to any partition there, too.
Source: ``rd_kafka_msg_partitioner_consistent_random`` of librdkafka.
"""
