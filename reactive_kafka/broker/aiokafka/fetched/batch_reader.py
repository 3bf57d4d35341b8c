"""Reads the record batches that one fetch returned of one partition, whatever they hold.

aiokafka's record batches are compiled. Their records already have every attribute of
:class:`reactive_kafka.records.RawRecord`, so they are returned as they are. Everything else is done
here: checksums, aborted transactions, control batches, records before the wanted offset, and the
end offset of a batch.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from reactive_kafka.broker.aiokafka.error_classes import class_for
from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.broker.aiokafka.fetched.log_bytes import (
    BatchSpan,
    batch_at,
    codec_of,
    has_right_checksum,
    lenient_records,
    next_after,
    packed_in,
    plain_header,
)
from reactive_kafka.broker.aiokafka.fetched.unpacking import Unpacker, unpacked
from reactive_kafka.broker.consumer.fetching.aborted_transactions import (
    AbortedTransactions,
    is_abort_marker,
)
from reactive_kafka.errors import (
    BrokerError,
    CorruptRecordError,
    TransientBrokerError,
    describe,
    how_to_install,
    without_frames,
)
from reactive_kafka.records import RawRecord, TopicPartition, size_of

# The default of max_unpacked_bytes.
MOST_UNPACKED_BYTES = 256 << 20


class BatchReader:
    """Takes records, as many as wanted at a time, from what one fetch returned of one partition.

    Args:
        partition: The partition.
        offset: The first one to return.
        content: Record batches.
        unpacker: Decompresses small batches.
        aborted: The aborted transactions in the content, which are passed over. None: their records
            are returned, too.
    """

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        content: bytes,
        unpacker: Unpacker,
        aborted: AbortedTransactions | None,
    ) -> None:
        self.next_offset = offset
        self.is_exhausted = False
        # Set before a batch that is large when decompressed. A thread has to run it and pass the
        # result to finish_unpack() before more records can be taken.
        self.pending_unpack: Callable[[], memoryview] | None = None
        self._partition = partition
        self._content = content
        self._unpacker = unpacker
        self._aborted = aborted
        # The batch that is being read, or cannot be read.
        self._batch_span: BatchSpan | None = None
        # Where the next batch begins in the content.
        self._next_at = 0
        # The offset after the last batch. The next batch cannot begin before it.
        self._last_end = 0
        self._batch: Any = None
        # The current batch after decompression; None if it is not compressed.
        self._unpacked_batch: bytes | memoryview | None = None
        # Why the next records cannot be read.
        self._broken: Exception | None = None
        self._records: Iterator[RawRecord] | None = None

    @property
    def left_bytes(self) -> int:
        """The number of bytes after the batch that is being read."""
        return len(self._content) - self._next_at

    def take(self, count: int) -> list[RawRecord]:
        """Return up to *count* records; fewer at the end or before ``pending_unpack``.

        ``next_offset`` moves past the returned records. It does not move past a batch that cannot
        be read. Records before a broken one in the same batch are returned if the checksum of the
        batch is right: then they are what was written.

        Raises:
            CorruptRecordError: The next batch cannot be read. Only raised if no record comes before
                it.
            TransientBrokerError: There is not enough memory to read it now.
        """
        taken: list[RawRecord] = []
        try:
            while len(taken) < count:
                if self._records is None and not self._open_next():
                    self.is_exhausted = self.pending_unpack is None
                    break
                self._take_from_batch(taken, count - len(taken))
        except Exception as error:
            # The decoder may raise anything for broken bytes: checksum, codec, struct, index.
            # This reader keeps the error. Its frames would keep the buffer with the batch alive.
            without_frames(error)
            self._records = None
            if not taken:
                self.is_exhausted = True
                # Running out of memory does not mean that the batch is broken.
                if isinstance(error, MemoryError | OSError):
                    raise TransientBrokerError(
                        f"{self._partition} cannot be read now: {describe(error)}"
                    ) from error
                begins_at = self._next_at if self._batch_span is None else self._batch_span.start
                until = next_after(self._content, begins_at, self.next_offset)
                raise CorruptRecordError(
                    self._partition, self.next_offset, _reason(error), until
                ) from error
            self._broken = error
        return taken

    def take_bytes(self, count: int, most_bytes: int) -> list[RawRecord]:
        """Return up to *count* records, and stop after the one that reaches *most_bytes*.

        Raises as :meth:`take`.
        """
        taken: list[RawRecord] = []
        while len(taken) < count and most_bytes > 0:
            try:
                more = self.take(1)
            except BrokerError as error:
                if not taken:
                    raise
                # Records come before the one that cannot be read: the next call raises.
                cause = error.__cause__
                self._broken = cause if isinstance(cause, Exception) else error
                self.is_exhausted = False
                break
            if not more:
                break
            taken += more
            most_bytes -= size_of(more[0])
        return taken

    def finish_unpack(self, done: Future[memoryview]) -> None:
        """Continue with the batch that a thread has decompressed, or failed to."""
        self.pending_unpack = None
        error = done.exception()
        if error is None:
            self._open_plain(done.result())
        elif isinstance(error, Exception):
            self._broken = without_frames(error)
        else:
            raise error

    def _take_from_batch(self, taken: list[RawRecord], wanted: int) -> None:
        """Append up to *wanted* records of the current batch; close the batch at its end."""
        records: list[RawRecord] = []
        try:
            self._fill(records, wanted)
        finally:
            self._keep(records, taken)
        if len(records) < wanted:
            self.next_offset = max(self.next_offset, self._batch.next_offset)
            self._batch = None
            self._records = None
            self._unpacked_batch = None

    def _fill(self, records: list[RawRecord], wanted: int) -> None:
        try:
            records += islice(self._records or (), wanted)
        except Exception:
            # The compiled reader refuses header names that are not UTF-8, which any producer may
            # write. The record at which it failed is read again without it.
            if not self._read_leniently(records):
                raise
            records += islice(self._records or (), wanted - len(records))

    def _keep(self, records: list[RawRecord], taken: list[RawRecord]) -> None:
        """Append *records* to *taken*, without those before the wanted offset.

        A compressed batch is always returned whole, from its first record on.
        """
        if records and records[0].offset < self.next_offset:
            records = [record for record in records if record.offset >= self.next_offset]
        if records:
            taken.extend(records)
            self.next_offset = records[-1].offset + 1

    def _read_leniently(self, given: list[RawRecord]) -> bool:
        """Read the rest of the batch with our own decoder. False if it cannot read this format."""
        span = self._batch_span
        if span is None or span.magic < 2:
            return False
        if self._unpacked_batch is None:
            content: bytes | memoryview = self._content[span.start : span.end]
        else:
            content = self._unpacked_batch
        first = max(self.next_offset, given[-1].offset + 1 if given else 0)
        self._records = (record for record in lenient_records(content) if record.offset >= first)
        return True

    def _open_next(self) -> bool:
        """Open the next batch with records to return.

        False at the end of the content, or before a batch with ``pending_unpack``.
        """
        if self._broken is not None:
            raise self._broken
        if self.pending_unpack is not None:
            return False
        while True:
            self._batch_span = None
            if (span := batch_at(self._content, self._next_at)) is None:
                return False
            self._batch_span = span
            self._next_at = span.end
            # No checksum covers the base offset of a batch, so it is compared with its neighbours.
            if span.base_offset < self._last_end:
                raise ValueError(
                    f"its base offset {span.base_offset} is before the end of the previous batch"
                )
            data = memoryview(self._content)[span.start : span.end]
            # The compiled batch class must not be created from here for the old formats: the
            # interpreter crashes when such objects are collected. MemoryRecords avoids that.
            batch = (
                MemoryRecords(bytes(data)).next_batch()
                if span.magic < 2
                else DefaultRecordBatch(data)
            )
            if not (batch.validate_crc() if span.magic < 2 else has_right_checksum(data)):
                raise ValueError("the checksum is wrong")
            if span.base_offset > self.next_offset and self._overlaps_next(batch.next_offset):
                raise ValueError(
                    f"it ends after the beginning of the next batch (its base offset is "
                    f"{span.base_offset})"
                )
            self._last_end = batch.next_offset
            if not self._is_passed_over(batch):
                self._batch = batch
                return self._open(batch, span, data)
            self.next_offset = max(self.next_offset, batch.next_offset)

    def _overlaps_next(self, until: int) -> bool:
        """True if the following batch begins before *until*, the end of the current one."""
        try:
            following = batch_at(self._content, self._next_at)
        except ValueError:
            return False
        return following is not None and following.base_offset < until

    def _open(self, batch: Any, span: BatchSpan, data: memoryview) -> bool:
        """Read the records of *batch*. False if a thread has to decompress it first."""
        codec = codec_of(data, span.magic)
        if not codec:
            # chain(), because a batch refuses to be asked for its iterator twice, as islice does.
            self._records = chain(batch)
            return True
        packed = packed_in(data, span.magic)
        head = plain_header(data) if span.magic == 2 else b""
        small = self._unpacker.small(codec, packed)
        if small is None:
            self.pending_unpack = partial(unpacked, codec, packed, self._unpacker.most_bytes, head)
            return False
        self._open_plain(b"".join((head, small)))
        return True

    def _open_plain(self, content: bytes | memoryview) -> None:
        if self._batch_span is not None and self._batch_span.magic < 2:
            # A batch of an old format decompresses itself once more. Its size is checked by now.
            self._records = chain(self._batch)
            return
        self._unpacked_batch = content
        self._records = chain(DefaultRecordBatch(content))

    def _is_passed_over(self, batch: Any) -> bool:
        """True if *batch* is a control batch, or is part of an aborted transaction."""
        if self._aborted is not None and batch.producer_id is not None:
            self._aborted.reach(batch.base_offset)
            if batch.is_control_batch:
                # Compaction may have removed the marker. The last batch of a producer stays.
                marker = next(batch, None)
                if marker is not None and is_abort_marker(marker.key):
                    self._aborted.end(batch.producer_id)
            elif batch.is_transactional and self._aborted.has(batch.producer_id):
                return True
        return bool(batch.is_control_batch)


class BatchFormat:
    """Opens the record batches that fetches return.

    Args:
        most_unpacked_bytes: A batch that is larger than this after decompression cannot be read.
    """

    def __init__(self, most_unpacked_bytes: int) -> None:
        self._unpacker = Unpacker(most_unpacked_bytes)

    def first_batch_bytes(self, content: bytes) -> int:
        """Return the size of the first batch; 0: it is cut short. ValueError: it is no batch."""
        first = batch_at(content, 0)
        return 0 if first is None else first.end

    def until(self, content: bytes, offset: int) -> int | None:
        """Return the position after the first batch, as :func:`next_after` does."""
        return next_after(content, 0, offset)

    def reader(
        self,
        partition: TopicPartition,
        offset: int,
        content: bytes,
        aborted: Sequence[tuple[int, int]] | None,
    ) -> BatchReader:
        """Return a reader of batches, which passes over aborted transactions if they are named."""
        passed_over = None if aborted is None else AbortedTransactions(aborted)
        return BatchReader(partition, offset, content, self._unpacker, passed_over)

    def error_of(self, code: int, about: str) -> BrokerError:
        """Return our error for an error code of a broker."""
        return translate(class_for(code)(about))


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if type(error).__name__ == "UnsupportedCodecError":
        return f"{text} ({how_to_install('compression')})"
    return text
