"""The table of events: its columns, and the statements on it. They are sent by the store."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from reactive_kafka.checkpoint.outbox import StoredEvent
from reactive_kafka.errors import CorruptCheckpointError
from reactive_kafka.records import HeaderPairs, RecordBytes, TopicPartition
from reactive_kafka.verdicts.outbox import OutboxEvent

EVENTS = sa.Table(
    "reactive_kafka_outbox",
    sa.MetaData(),
    # AUTOINCREMENT in SQLite: without it a number may be used again, and the delete of a relay
    # that is late would hit another row.
    sa.Column(
        "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity(), primary_key=True
    ),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("group_id", sa.Text, nullable=False),
    sa.Column("source_topic", sa.Text, nullable=False),
    sa.Column("source_partition", sa.Integer, nullable=False),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("topic", sa.Text, nullable=False),
    sa.Column("partition", sa.Integer),
    sa.Column("key", sa.LargeBinary),
    sa.Column("value", sa.LargeBinary),
    sa.Column("headers", sa.Text, nullable=False),
    sa.Column("timestamp_ms", sa.BigInteger),
    sa.Column(
        "created_at",
        sa.DateTime(timezone=True),
        nullable=False,
        server_default=sa.func.current_timestamp(),
    ),
    sqlite_autoincrement=True,
)
sa.Index(
    "reactive_kafka_outbox_order",
    EVENTS.c.group_id,
    EVENTS.c.channel,
    EVENTS.c.source_topic,
    EVENTS.c.source_partition,
    EVENTS.c.id,
)

_SIZE = sa.func.coalesce(sa.func.length(EVENTS.c.value), 0)


def values_of(group: str, source: TopicPartition, event: OutboxEvent) -> dict[str, Any]:
    """Return the columns of an event's row."""
    record = event.record
    return {
        "event_id": event.id,
        "group_id": group,
        "source_topic": source.topic,
        "source_partition": source.partition,
        "channel": event.channel,
        "topic": event.topic,
        "partition": event.partition,
        "key": record.key,
        "value": record.value,
        "headers": _headers_as_text(record.headers),
        "timestamp_ms": record.timestamp_ms,
    }


def counting(group: str, sources: Collection[TopicPartition]) -> sa.Select[Any]:
    """Return the statement that counts the rows of each outgoing channel."""
    columns = EVENTS.c
    return (
        sa.select(columns.channel, sa.func.count().label("waiting"))
        .where(columns.group_id == group, _is_of(sources))
        .group_by(columns.channel)
    )


def reading(
    group: str,
    sources: Collection[TopicPartition],
    channel: str,
    *,
    most: int,
    most_bytes: int,
) -> sa.Select[Any]:
    """Return the statement that reads the first rows of an outgoing channel."""
    columns = EVENTS.c
    first = (
        sa.select(columns.id, _SIZE.label("size"))
        .where(columns.group_id == group, columns.channel == channel, _is_of(sources))
        .order_by(columns.id)
        .limit(most)
        .subquery()
    )
    up_to = sa.select(
        first.c.id, (sa.func.sum(first.c.size).over(order_by=first.c.id) - first.c.size).label("at")
    ).subquery()
    return (
        sa.select(EVENTS)
        .join(up_to, up_to.c.id == columns.id)
        .where(up_to.c.at < most_bytes)
        .order_by(columns.id)
    )


def trials() -> Iterator[tuple[str, sa.Executable]]:
    """Yield each right that an outbox needs, with a statement that needs it and finds no row."""
    columns = [column for column in EVENTS.c if column.name not in ("id", "created_at")]
    nothing = sa.select(*(sa.cast(sa.null(), column.type) for column in columns))
    yield "INSERT", EVENTS.insert().from_select(columns, nothing.where(sa.false()))
    yield "SELECT", sa.select(EVENTS).where(sa.false())
    yield "DELETE", EVENTS.delete().where(sa.false())


def _is_of(sources: Collection[TopicPartition]) -> sa.ColumnElement[bool]:
    columns = EVENTS.c
    return sa.tuple_(columns.source_topic, columns.source_partition).in_(
        [tuple(source) for source in sorted(sources)]
    )


def stored_events(place: str, rows: Sequence[sa.Row[Any]]) -> list[StoredEvent]:
    """Return the events that were read.

    Args:
        place: The database, for errors.

    Raises:
        CorruptCheckpointError: Somebody has changed a row so that it is no event any more.
    """
    return [_stored_event(place, row) for row in rows]


def unreadable(place: str, which: str, error: Exception) -> CorruptCheckpointError:
    """Return the error for rows that cannot be events.

    Args:
        which: Which row, or that it is one of them.
    """
    return CorruptCheckpointError(f"{place}: {which} of {EVENTS.name} cannot be read: {error}")


def _stored_event(place: str, row: sa.Row[Any]) -> StoredEvent:
    try:
        record = RecordBytes(
            _as_bytes(row.value), _as_bytes(row.key), _headers_of(row.headers), row.timestamp_ms
        )
    except (TypeError, ValueError) as error:
        raise unreadable(place, f"row {row.id}", error) from error
    return StoredEvent(
        row.id,
        TopicPartition(row.source_topic, row.source_partition),
        OutboxEvent(row.event_id, row.channel, row.topic, row.partition, record),
        _seconds_of(row.created_at),
    )


def _seconds_of(created_at: datetime) -> float:
    # SQLite has no zones: its CURRENT_TIMESTAMP is in UTC.
    if created_at.tzinfo is None:
        created_at = created_at.replace(tzinfo=UTC)
    return created_at.timestamp()


def _as_bytes(stored: Any) -> bytes | None:
    # A driver may return a memoryview.
    return None if stored is None else bytes(stored)


def _headers_as_text(headers: HeaderPairs) -> str:
    # ASCII only: a name may have bytes that are no UTF-8, which JSON writes as lone surrogates.
    return json.dumps(
        [
            [name, None if value is None else base64.b64encode(value).decode()]
            for name, value in headers
        ]
    )


def _headers_of(text: str) -> HeaderPairs:
    return tuple(
        (name, None if value is None else base64.b64decode(value))
        for name, value in json.loads(text)
    )
