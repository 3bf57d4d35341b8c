"""Packs records into a batch of aiokafka's, and says which partition a key belongs to. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from reactive_kafka.errors import RejectedRecordError
from reactive_kafka.records import HeaderPairs, RecordFields

_SEED, _FACTOR, _MASK = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF
_WORDS = [Struct(f"<{count}I").unpack_from for count in range(33)]  # of the keys that are common


def java_hash(key: bytes) -> int:
    """Murmur2 without the sign: its remainder by the number of partitions is where Java's producer writes the key.

    Source: ``Utils.murmur2`` and ``BuiltInPartitioner.partitionForKey`` of Kafka's clients.
    """
    count = len(key) >> 2
    value = _SEED ^ len(key)
    for word in _WORDS[count](key) if count < len(_WORDS) else Struct(f"<{count}I").unpack_from(key):
        word = word * _FACTOR & _MASK
        value = (value * _FACTOR ^ (word ^ word >> 24) * _FACTOR) & _MASK
    if rest := len(key) & 3:
        value = (value ^ int.from_bytes(key[-rest:], "little")) * _FACTOR & _MASK
    value = (value ^ value >> 13) * _FACTOR & _MASK
    return (value ^ value >> 15) & 0x7FFFFFFF


def packed(client: Any, records: Sequence[RecordFields], most_bytes: int) -> Any:
    """A batch for this producer, of the first of *records* that fit into one; a first that is larger goes alone.

    RejectedRecordError: It is larger than ``max_request_size``, which the client checks for its own send only.
    """
    first = records[0]
    size = DefaultRecordBatchBuilder.estimate_size_in_bytes(first.key, first.value, _pairs(first.headers))
    if size > client._max_request_size:
        limit = f"max_request_size = {client._max_request_size}"
        raise RejectedRecordError(f"the record has {size} bytes, which is more than {limit}")
    # The broker takes any batch in a transaction: one that does not say that it is part of it is seen at once.
    manager = client._txn_manager
    is_transactional = manager is not None and manager.transactional_id is not None
    batch = BatchBuilder(most_bytes, client._message_accumulator._compression_type, is_transactional=is_transactional)
    # The compiled method is called directly: the client's own around it costs more than the packing itself.
    append, count, none = batch._builder.append, 0, list[tuple[str, bytes | None]]()
    for record in records:
        headers = record.headers
        try:
            # The client's docstring says seconds, and it writes milliseconds.
            fits = append(count, record.timestamp_ms, record.key, record.value, _pairs(headers) if headers else none)
        except (ValueError, TypeError, OverflowError):
            if not count:
                raise
            break  # what is wrong with it is told when it is the first one
        if fits is None:
            break
        count += 1
    batch._relative_offset = count
    batch.close()  # so that it does not linger, and no other record gets into it
    return batch


def _pairs(headers: HeaderPairs) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in headers] if headers else []
