"""Filters what aiokafka logs: less noise in an outage."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_UNREACHABLE_EVENT = "BrokerUnavailable"
_WRITE_EVENTS = "SendFailed Unwritten TransactionAborted BrokerUnavailable"
_TOPIC_EVENTS = "TopicMissing NothingMatches NotWritable"
COVERED_BY_EVENTS: Mapping[str, str] = {
    "Topic %s not found in cluster metadata": _TOPIC_EVENTS,
    "Topic %s is not available during auto-create": _TOPIC_EVENTS,
    "Topic %s is not authorized for this client": f"{_TOPIC_EVENTS} {_UNREACHABLE_EVENT}",
    "Got error produce response": _WRITE_EVENTS,
    "Cannot send %r to": _WRITE_EVENTS,
    "Could not send %r": _WRITE_EVENTS,
}
"""The beginning of a line of the client -> our events that say the same, or more.

A line that says more stays in the log. tests/broker/test_client_log.py has the decision about each
line of the client.
"""

_COVERED = tuple(COVERED_BY_EVENTS)
is_ours: ContextVar[bool] = ContextVar("is_ours", default=False)
"""True while a client of ours is started or called, and in the tasks that it starts. Other parts of
an application may use aiokafka, too.
"""


class QuietFilter(logging.Filter):
    """Passes one warning a second from each line of the client's code, which logs each attempt.

    What our own events report becomes a DEBUG line.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed_at: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        if is_ours.get() and str(record.msg).startswith(_COVERED):
            record.levelno = logging.DEBUG
            record.levelname = "DEBUG"
            return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
        place = (record.pathname, record.lineno)
        now = time.monotonic()
        if now - self._passed_at.get(place, -1.0) < 1.0:
            return False
        self._passed_at[place] = now
        return True


LOGGERS = (
    "aiokafka",
    "aiokafka.admin.client",
    "aiokafka.cluster",
    "aiokafka.conn",
    "aiokafka.helpers",
    # Since 0.15.
    "aiokafka.producer.message_accumulator",
    "aiokafka.producer.producer",
    "aiokafka.producer.sender",
)
"""The loggers of what we use of the client. Those of its consumer are an application's own.

A filter sees only the lines of the logger that it is attached to.
"""

_quiet = QuietFilter()

for _name in LOGGERS:
    logging.getLogger(_name).addFilter(_quiet)


@contextmanager
def as_ours() -> Iterator[None]:
    """Mark what the client logs in this block as being about a client of ours.

    That includes the tasks that start in the block.
    """
    if is_ours.get():
        # Each change makes a new context, which the tasks and timers of the block would keep.
        yield
        return
    kept = is_ours.set(True)
    try:
        yield
    finally:
        is_ours.reset(kept)
