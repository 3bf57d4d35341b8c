"""Packs records into a batch of aiokafka's, and says which partition a key belongs to. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatchBuilder, _DefaultRecordBatchBuilderPy

from reactive_kafka.errors import RejectedRecordError
from reactive_kafka.records import HeaderPairs, RecordFields

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF
# Of the keys that are common.
_WORDS = [Struct(f"<{count}I").unpack_from for count in range(33)]


def java_hash(key: bytes) -> int:
    """Murmur2 without the sign: its remainder by the number of partitions is where Java's producer
    writes the key.

    Source: ``Utils.murmur2`` and ``BuiltInPartitioner.partitionForKey`` of Kafka's clients.
    """
    count = len(key) >> 2
    value = _SEED ^ len(key)
    for word in (
        _WORDS[count](key) if count < len(_WORDS) else Struct(f"<{count}I").unpack_from(key)
    ):
        word = word * _FACTOR & _MASK
        value = (value * _FACTOR ^ (word ^ word >> 24) * _FACTOR) & _MASK
    if rest := len(key) & 3:
        value = (value ^ int.from_bytes(key[-rest:], "little")) * _FACTOR & _MASK
    value = (value ^ value >> 13) * _FACTOR & _MASK
    return (value ^ value >> 15) & 0x7FFFFFFF


def packed(client: Any, records: Sequence[RecordFields], most_bytes: int) -> Any:
    """A batch for this producer, of the first of *records* that fit into one; a first that is
    larger goes alone.

    RejectedRecordError: It is larger than ``max_request_size``, which the client checks for its own
    send only.
    """
    first = records[0]
    is_bytewise = has_odd_names(first.headers)
    kind, pairs = (_BytewiseBatch, _bytewise) if is_bytewise else (BatchBuilder, _pairs)
    sizes = _DefaultRecordBatchBuilderPy if is_bytewise else DefaultRecordBatchBuilder
    size = sizes.estimate_size_in_bytes(first.key, first.value, pairs(first.headers))
    if size > client._max_request_size:
        limit = f"max_request_size = {client._max_request_size}"
        raise RejectedRecordError(f"the record has {size} bytes, which is more than {limit}")
    # The broker takes any batch in a transaction: one that does not say that it is part of it is
    # seen at once.
    manager = client._txn_manager
    is_transactional = manager is not None and manager.transactional_id is not None
    batch = kind(
        most_bytes, client._message_accumulator._compression_type, is_transactional=is_transactional
    )
    # The compiled method is called directly: the client's own around it costs more than the packing
    # itself.
    append = batch._builder.append
    count = 0
    none = list[tuple[str, bytes | None]]()
    for record in records:
        headers = record.headers
        try:
            # The client's docstring says seconds, and it writes milliseconds.
            fits = append(
                count,
                record.timestamp_ms,
                record.key,
                record.value,
                pairs(headers) if headers else none,
            )
        except (ValueError, TypeError, OverflowError):
            if not count:
                raise
            # What is wrong with it is told when it is the first one, and odd names begin a batch of
            # their kind.
            break
        if fits is None:
            break
        count += 1
    batch._relative_offset = count
    # So that it does not linger, and no other record gets into it.
    batch.close()
    return batch


def has_odd_names(headers: HeaderPairs) -> bool:
    """Whether a name of them was no UTF-8 where it was read: such bytes are lone surrogates in
    it.
    """
    return any(
        not name.isascii() and not name.isprintable() and _has_bytes(name) for name, _ in headers
    )


def _has_bytes(name: str) -> bool:
    return any("\udc80" <= char <= "\udcff" for char in name)


class _Name(str):
    """The name of a header that is written with the bytes that it was read with."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return super().encode("utf-8", "surrogateescape")


# Aiokafka is untyped.
class _BytewiseBatch(BatchBuilder):  # type: ignore[misc]
    """A batch made by the client's builder in Python: the compiled one takes no names but those
    that are UTF-8.
    """

    def __init__(self, batch_size: int, compression_type: int, *, is_transactional: bool) -> None:
        super().__init__(batch_size, compression_type, is_transactional=is_transactional)
        self._builder = _DefaultRecordBatchBuilderPy(
            2, compression_type, is_transactional, -1, -1, 0, batch_size
        )

    def _set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> None:
        self._builder.set_producer_state(producer_id, producer_epoch, base_sequence)


def _bytewise(headers: HeaderPairs) -> list[tuple[str, bytes | None]]:
    return [(_Name(name), value) for name, value in headers]


def _pairs(headers: HeaderPairs) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in headers] if headers else []
