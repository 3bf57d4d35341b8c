"""Reads a fetched piece of a partition's log without an object per record of our own.

The client's ``getmany`` makes a dataclass of eleven fields for each record, which is most of what it costs.
Underneath lie compiled record batches; their records already have every attribute of
:class:`reactive_kafka.records.RawRecord`, so they are handed out as they are. What the client's own reader does
stays done: checksums, aborted transactions, control batches, records below the wanted offset, the batch's own end.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from reactive_kafka.errors import CorruptRecordError
from reactive_kafka.records import RawRecord, TopicPartition


class BatchReader:
    """Takes records, as many as wanted at a time, out of one fetched piece of one partition.

    The piece is the client's ``PartitionRecords``, of which nothing has been read. With *read_committed* records of
    aborted transactions are passed over.
    """

    def __init__(self, partition: TopicPartition, piece: Any, *, read_committed: bool) -> None:
        self.next_offset: int = piece.next_fetch_offset
        self.is_exhausted = False
        self._partition = partition
        self._piece = piece
        self._batches = piece._records
        self._read_committed = read_committed
        self._batch: Any = None
        self._broken: Exception | None = None  # why the next batch cannot be read
        # A generator of the client's that refers back to the piece. We read underneath it; left in place, it would keep
        # each piece, with all its bytes, until the cyclic collector comes along.
        piece._records_iterator = None
        self._records: Iterator[RawRecord] | None = None

    def take(self, count: int) -> list[RawRecord]:
        """Up to *count* records; fewer only at the end of the piece. ``next_offset`` goes along.

        Before a batch that cannot be read it stays: with nothing taken first, CorruptRecordError says so.
        """
        taken: list[RawRecord] = []
        try:
            while len(taken) < count:
                if self._records is None and not self._open_next():
                    self.is_exhausted = True
                    break
                self._take_from_batch(taken, count - len(taken))
        except Exception as error:  # whatever the decoder meets in broken bytes: checksum, codec, struct, index
            self._records = None
            if not taken:
                self.is_exhausted = True
                raise CorruptRecordError(self._partition, self.next_offset, _reason(error)) from error
            self._broken = error
        return taken

    def _take_from_batch(self, taken: list[RawRecord], wanted: int) -> None:
        records = list(islice(self._records or (), wanted))
        is_end = len(records) < wanted
        if records and records[0].offset < self.next_offset:  # a compressed batch starts where it was written
            records = [record for record in records if record.offset >= self.next_offset]
        if records:
            taken.extend(records)
            self.next_offset = records[-1].offset + 1
        if is_end:
            self.next_offset = max(self.next_offset, self._batch.next_offset)
            self._batch = self._records = None

    def _open_next(self) -> bool:
        """Go to the next batch with records for us; False at the end of the piece."""
        if self._broken is not None:
            raise self._broken
        while self._batches.has_next():
            batch = self._batches.next_batch()
            if not batch.validate_crc():
                raise ValueError("the checksum is wrong")
            if not self._is_passed_over(batch):
                self._batch = batch
                self._records = chain(batch)  # a batch refuses to be asked for its iterator twice, as islice does
                return True
            self.next_offset = max(self.next_offset, batch.next_offset)
        return False

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
