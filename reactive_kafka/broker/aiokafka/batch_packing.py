"""Packs records into a batch of aiokafka's. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatchBuilder, _DefaultRecordBatchBuilderPy

from reactive_kafka.errors import RejectedRecordError
from reactive_kafka.records import HeaderPairs, RecordFields


def pack_batch(client: Any, records: Sequence[RecordFields], most_bytes: int) -> Any:
    """Return a batch with the first of *records* that fit into *most_bytes*, at least one.

    Raises:
        RejectedRecordError: The first record is larger than ``max_request_size``. The client checks
            that only in its own send.
    """
    first = records[0]
    if has_non_utf8_names(first.headers):
        kind, pairs, sizes = _BytewiseBatch, _bytewise, _DefaultRecordBatchBuilderPy
    else:
        kind, pairs, sizes = BatchBuilder, _pairs, DefaultRecordBatchBuilder
    size = sizes.estimate_size_in_bytes(first.key, first.value, pairs(first.headers))
    if size > client._max_request_size:
        limit = f"max_request_size = {client._max_request_size}"
        raise RejectedRecordError(f"the record has {size} bytes, which is more than {limit}")
    # The broker accepts any batch during a transaction. Readers see a batch at once if it does not
    # say that it is part of the transaction.
    manager = client._txn_manager
    is_transactional = manager is not None and manager.transactional_id is not None
    batch = kind(
        most_bytes, client._message_accumulator._compression_type, is_transactional=is_transactional
    )
    # The compiled method is called directly. The client's wrapper costs more than the packing.
    append = batch._builder.append
    count = 0
    no_headers = list[tuple[str, bytes | None]]()
    for record in records:
        headers = record.headers
        try:
            # The client's docstring says that the time is in seconds, but it writes milliseconds.
            fits = append(
                count,
                record.timestamp_ms,
                record.key,
                record.value,
                pairs(headers) if headers else no_headers,
            )
        except (ValueError, TypeError, OverflowError):
            if not count:
                raise
            # The record is refused when it comes first. If only its header names are odd, it starts
            # a batch of the other kind.
            break
        if fits is None:
            break
        count += 1
    batch._relative_offset = count
    # Closed, so that it is sent at once and gets no other record.
    batch.close()
    return batch


def has_non_utf8_names(headers: HeaderPairs) -> bool:
    """True if a header name was not UTF-8 when it was read: its bytes are lone surrogates."""
    return any(
        not name.isascii() and not name.isprintable() and _has_bytes(name) for name, _ in headers
    )


def _has_bytes(name: str) -> bool:
    return any("\udc80" <= char <= "\udcff" for char in name)


class _Name(str):
    """A header name that is written with the bytes that it was read with."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return super().encode("utf-8", "surrogateescape")


# aiokafka is untyped.
class _BytewiseBatch(BatchBuilder):  # type: ignore[misc]
    """A batch made by the client's builder in Python. The compiled one accepts only UTF-8 names."""

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
