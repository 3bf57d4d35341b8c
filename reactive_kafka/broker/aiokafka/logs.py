"""aiokafka's log, kept sane: why it could not connect, no passwords, and no flood in an outage."""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar

from reactive_kafka.errors import BrokerError, FatalBrokerError

DENIED = ("AuthenticationFailed", "UnsupportedSaslMechanism")  # parts of names of errors that are only logged

_starting: ContextVar[StartupReasons | None] = ContextVar("_starting", default=None)


class StartupReasons(logging.Handler):
    """Keeps what the client logs while it connects: its exception does not say why it could not.

    Of several clients that connect at the same time, each is told only what was logged on its own behalf.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reasons: list[str] = []
        self.is_over = False  # the tasks that the client has started meanwhile keep the variable for good

    def emit(self, record: logging.LogRecord) -> None:
        if _starting.get() is self:
            self.reasons.append(record.getMessage())

    def __enter__(self) -> StartupReasons:
        logging.getLogger("aiokafka").addHandler(self)
        self._token = _starting.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        _starting.reset(self._token)
        logging.getLogger("aiokafka").removeHandler(self)

    def explain(self, error: BrokerError) -> BrokerError:
        """The error with the last reasons added; fatal where credentials are the reason."""
        if not self.reasons:
            return error
        text = f"{error} ({'; '.join(dict.fromkeys(self.reasons[-2:]))})"
        is_denied = any(text in reason for text in DENIED for reason in self.reasons)
        return FatalBrokerError(text) if is_denied else type(error)(text)


# What the client logs at DEBUG about authentication has the password's bytes (H8).
logging.getLogger("aiokafka.conn").addFilter(lambda record: "Sasl" not in record.getMessage())


class QuietFilter(logging.Filter):
    """Passes one warning a second from each place in the client's code: in an outage it logs each attempt of each task.

    What is logged while a client connects all passes: it is the reason that our own error gives.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed_at: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        starting = _starting.get()
        if record.levelno < logging.WARNING or (starting is not None and not starting.is_over):
            return True
        place, now = (record.pathname, record.lineno), time.monotonic()
        if now - self._passed_at.get(place, -1.0) < 1.0:
            return False
        self._passed_at[place] = now
        return True


_quiet = QuietFilter()
for _name in (
    "aiokafka",
    "aiokafka.cluster",
    "aiokafka.conn",
    "aiokafka.consumer.consumer",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.producer.producer",
    "aiokafka.producer.sender",
):
    logging.getLogger(_name).addFilter(_quiet)
