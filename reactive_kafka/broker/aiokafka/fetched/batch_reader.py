"""Reads the batches of one fetched piece of one partition, whatever they hold.

The client's ``getmany`` makes a dataclass of eleven fields for each record, which is most of what
it costs. Underneath lie compiled record batches; their records already have every attribute of
:class:`reactive_kafka.records.RawRecord`, so they are handed out as they are. What the client's own
reader does stays done: checksums, aborted transactions, control batches, records below the wanted
offset, the batch's own end.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from reactive_kafka.broker.aiokafka.fetched.log_bytes import (
    Slice,
    codec_of,
    has_right_checksum,
    lenient_records,
    next_after,
    packed_in,
    plain_header,
    slice_at,
)
from reactive_kafka.broker.aiokafka.fetched.unpacking import Unpacker, unpacked
from reactive_kafka.errors import CorruptRecordError, TransientBrokerError, describe, without_frames
from reactive_kafka.records import RawRecord, TopicPartition


class BatchReader:
    """Takes records, as many as wanted at a time, out of one fetched piece of one partition.

    *content* is the piece in bytes, *piece* the client's ``PartitionRecords`` of it, of which
    nothing has been read. With *read_committed* records of aborted transactions are passed over.
    """

    def __init__(
        self,
        partition: TopicPartition,
        piece: Any,
        content: bytes,
        unpacker: Unpacker,
        *,
        read_committed: bool,
    ) -> None:
        self.next_offset: int = piece.next_fetch_offset
        self.is_exhausted = False
        # What a thread has to do before anything more can be taken, and :meth:`go_on` be told of: a
        # large batch.
        self.work: Callable[[], memoryview] | None = None
        self._partition = partition
        self._piece = piece
        self._content = content
        self._unpacker = unpacker
        self._read_committed = read_committed
        # The batch that is read, or cannot be.
        self._here: Slice | None = None
        # Where the next one begins.
        self._at = 0
        # Offset behind the last one: the next one cannot begin before.
        self._behind = 0
        self._batch: Any = None
        # The batch without compression, where it had one.
        self._plain: bytes | memoryview | None = None
        # Why the next batch cannot be read.
        self._broken: Exception | None = None
        self._records: Iterator[RawRecord] | None = None
        # A generator of the client's that refers back to the piece. We read underneath it; left in
        # place, it would keep each piece, with all its bytes, until the cyclic collector comes
        # along.
        piece._records_iterator = None

    @property
    def left_bytes(self) -> int:
        """How much of the piece lies behind the batch that is read."""
        return len(self._content) - self._at

    def take(self, count: int) -> list[RawRecord]:
        """Up to *count* records; fewer only at the end of the piece, or before a large batch
        (``work``).

        ``next_offset`` goes along. Before a batch that cannot be read it stays: with nothing taken
        first, CorruptRecordError says so; TransientBrokerError: there is no memory for it now.
        Records in front of a broken one in its batch are taken, if the checksum of the batch is
        right: then they are what was written.
        """
        taken: list[RawRecord] = []
        try:
            while len(taken) < count:
                if self._records is None and not self._open_next():
                    self.is_exhausted = self.work is None
                    break
                self._take_from_batch(taken, count - len(taken))
        except Exception as error:
            # Whatever the decoder meets in broken bytes: checksum, codec, struct, index.
            # The frames have the room into which the batch was unpacked, and this reader, which
            # keeps the error.
            without_frames(error)
            self._records = None
            if not taken:
                self.is_exhausted = True
                # The batch may be fine.
                if isinstance(error, MemoryError | OSError):
                    raise TransientBrokerError(
                        f"{self._partition} cannot be read now: {describe(error)}"
                    ) from error
                at = self._at if self._here is None else self._here.at
                until = next_after(self._content, at, self.next_offset)
                raise CorruptRecordError(
                    self._partition, self.next_offset, _reason(error), until
                ) from error
            self._broken = error
        return taken

    def go_on(self, done: Future[memoryview]) -> None:
        """The work of the thread is done."""
        self.work = None
        error = done.exception()
        if error is None:
            self._open_plain(done.result())
        elif isinstance(error, Exception):
            self._broken = without_frames(error)
        else:
            raise error

    def _take_from_batch(self, taken: list[RawRecord], wanted: int) -> None:
        records: list[RawRecord] = []
        try:
            self._fill(records, wanted)
        finally:
            self._keep(records, taken)
        if len(records) < wanted:
            self.next_offset = max(self.next_offset, self._batch.next_offset)
            self._batch = self._records = self._plain = None

    def _fill(self, records: list[RawRecord], wanted: int) -> None:
        try:
            records += islice(self._records or (), wanted)
        except Exception:
            # The compiled reader takes no name of a header that is not UTF-8, which any producer
            # may write. What it gave up at is read again without it.
            if not self._read_leniently(records):
                raise
            records += islice(self._records or (), wanted - len(records))

    def _keep(self, records: list[RawRecord], taken: list[RawRecord]) -> None:
        # A compressed batch starts where it was written.
        if records and records[0].offset < self.next_offset:
            records = [record for record in records if record.offset >= self.next_offset]
        if records:
            taken.extend(records)
            self.next_offset = records[-1].offset + 1

    def _read_leniently(self, given: list[RawRecord]) -> bool:
        here = self._here
        if here is None or here.magic < 2:
            return False
        content = self._content[here.at : here.end] if self._plain is None else self._plain
        first = max(self.next_offset, given[-1].offset + 1 if given else 0)
        self._records = (record for record in lenient_records(content) if record.offset >= first)
        return True

    def _open_next(self) -> bool:
        """Go to the next batch with records for us; False at the end of the piece, or before a
        large batch.
        """
        if self._broken is not None:
            raise self._broken
        if self.work is not None:
            return False
        while True:
            self._here = None
            if (here := slice_at(self._content, self._at)) is None:
                return False
            self._here = here
            self._at = here.end
            if here.base < self._behind:
                raise ValueError(
                    f"it says that it begins at offset {here.base}, which is behind it"
                )
            data = memoryview(self._content)[here.at : here.end]
            # The compiled batch of the old formats cannot be made from here: the interpreter
            # crashes when such objects are collected. MemoryRecords makes it in its own way.
            batch = (
                MemoryRecords(bytes(data)).next_batch()
                if here.magic < 2
                else DefaultRecordBatch(data)
            )
            if not (batch.validate_crc() if here.magic < 2 else has_right_checksum(data)):
                raise ValueError("the checksum is wrong")
            if here.base > self.next_offset and self._is_ahead(batch.next_offset):
                raise ValueError(
                    f"it says that it begins at offset {here.base}, which is before it"
                )
            self._behind = batch.next_offset
            if not self._is_passed_over(batch):
                self._batch = batch
                return self._open(batch, here, data)
            self.next_offset = max(self.next_offset, batch.next_offset)

    def _is_ahead(self, until: int) -> bool:
        """Whether the batch behind it begins before its end. No checksum covers the offset of a
        batch.
        """
        try:
            following = slice_at(self._content, self._at)
        except ValueError:
            return False
        return following is not None and following.base < until

    def _open(self, batch: Any, here: Slice, data: memoryview) -> bool:
        codec = codec_of(data, here.magic)
        if not codec:
            # A batch refuses to be asked for its iterator twice, as islice does.
            self._records = chain(batch)
            return True
        packed = packed_in(data, here.magic)
        head = plain_header(data) if here.magic == 2 else b""
        small = self._unpacker.small(codec, packed)
        if small is None:
            self.work = partial(unpacked, codec, packed, self._unpacker.most_bytes, head)
            return False
        self._open_plain(b"".join((head, small)))
        return True

    def _open_plain(self, content: bytes | memoryview) -> None:
        if self._here is not None and self._here.magic < 2:
            # It unpacks itself once more; now it is known not to be too large.
            self._records = chain(self._batch)
            return
        self._plain = content
        self._records = chain(DefaultRecordBatch(content))

    def _is_passed_over(self, batch: Any) -> bool:
        piece = self._piece
        if self._read_committed and batch.producer_id is not None:
            piece._consume_aborted_up_to(batch.base_offset)
            if batch.is_control_batch:
                if piece._contains_abort_marker(batch):
                    piece._aborted_producers.discard(batch.producer_id)
            elif batch.is_transactional and batch.producer_id in piece._aborted_producers:
                return True
        return bool(batch.is_control_batch)


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if type(error).__name__ == "UnsupportedCodecError":
        return f"{text} (pip install 'reactive-kafka[compression]')"
    return text
