"""Writes the rows of a DataFrame to a broker that Spark's executors cannot reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from reactive_kafka.errors import ChannelClosedError
from reactive_kafka.outgoing.outgoing_channel import OutgoingChannel
from reactive_kafka.outgoing.queue.receipt import CallbackReceipt, receipted
from reactive_kafka.outgoing.queue.record import OutgoingRecord
from reactive_kafka.records import HeaderPairs, RecordBytes
from reactive_kafka.tasks import HomeLoop


def collect_and_write(rows: Any, channel: OutgoingChannel, home: HomeLoop) -> None:
    """Collect *rows*, and wait until *channel* has written them. Called in the thread of a job.

    The broker in memory of a test is such a broker.

    Raises:
        ChannelClosedError: The channel stops.
        RejectedRecordError: The broker refuses a record.
    """
    records = list(_records(rows.toArrow().to_batches(), channel.topic))

    def put_all(written: Future[None]) -> None:
        _put_all(channel, records, written)

    home.send(put_all, _has_stopped).result()


def _put_all(
    channel: OutgoingChannel, records: Sequence[OutgoingRecord], written: Future[None]
) -> None:
    def report(error: BaseException | None) -> None:
        if error is None:
            written.set_result(None)
        else:
            written.set_exception(error)

    receipt = CallbackReceipt(report)
    try:
        for record in records:
            receipt.expect()
            channel.writer.put_now(receipted(record, receipt), record.topic, record.partition)
    except BaseException:
        # The caller gets this error, and must not get another answer.
        receipt.void()
        raise
    receipt.seal()


def _has_stopped() -> None:
    raise ChannelClosedError("the application has stopped")


def _records(pieces: Iterable[Any], topic: str) -> Iterator[OutgoingRecord]:
    for piece in pieces:
        for row in piece.to_pylist():
            content = RecordBytes(
                _bytes_of(row["value"]),
                _bytes_of(row.get("key")),
                _header_pairs(row.get("headers")),
                None,
            )
            yield OutgoingRecord(topic, content, row.get("partition"))


def _bytes_of(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _header_pairs(headers: Iterable[Any] | None) -> HeaderPairs:
    return tuple((header["key"], header["value"]) for header in headers or ())
