"""The public errors, by who must act.

ReactiveKafkaError
├── ConfigError (ValueError)          the user: names file, channel, key, value and what is allowed
├── MissingExtraError (ImportError)   the user: install the extra that the text names
├── BrokerError                       raised at the seam only, with the client's error as __cause__
│   ├── TransientBrokerError          nobody: the same call may succeed later
│   │   ├── OutcomeUnknownError       nobody: it may or may not have taken effect
│   │   ├── TransactionAbortedError   nobody: nothing of it counts; its records are handled again
│   │   ├── StoreAwayError            nobody: the checkpoint store is away; the call is repeated
│   │   └── SchemaAwayError           nobody: the schema registry is away; nothing was sent
│   ├── FatalBrokerError              the operator: authentication, authorisation, unknown topic
│   │   ├── FencedError               the operator: two consumers have one group_instance_id
│   │   └── CheckpointStoreError      the operator: the store rejects a transaction; channel stops
│   ├── RejectedRecordError           the user: the record is too large, or not allowed
│   ├── OffsetOutOfRangeError         the reset policy: the log no longer holds the position
│   ├── CorruptRecordError            the operator: bytes of the log cannot be read
│   ├── CorruptCheckpointError        the operator: a row of the checkpoint store cannot be read
│   ├── MetadataTooLargeError         nobody: the position is committed without it
│   ├── PositionsRefusedError         the operator: positions of some partitions are refused
│   └── NotOwnerError                 nobody: the partition has moved on; the commit is dropped
│       └── CheckpointRefusedError    nobody: a later owner has written to the checkpoint store
├── DecodeError (ValueError)          the producer of the record; always becomes a nack
├── UnmatchedRecordError              the handlers' author: no handler takes the record; a nack
├── EncodeError (ValueError)          the sender: the value cannot be serialised; nothing is sent
├── BufferFullError                   the sender: too many records wait for the broker
├── ReplyTimeoutError (TimeoutError)  the requester: no reply in time; it may have been handled
├── HandlerError                      the user's exception, with the record; always becomes a nack
├── CommitRefusedError                the caller: the position would pass an unsettled record
├── SkipRefusedError                  the caller: this record cannot be skipped by hand
├── CheckpointError                   the handler's author: an impossible state or transaction
│   └── AlreadyStoredError            nobody: the record is settled
├── CommitStrategyError               the strategy's author: it raised, or returned no position
├── PoisonError                       the handler's author: a record was unsettled for too long
├── RetryLaterError                   nobody: the handler wants the record to come again later
├── OffloadError                      a Spark job failed: every record of its batch is nacked
│   ├── BadDataError                  the records' producer: smaller batches can isolate them
│   ├── DataLossError                 the operator: the log no longer holds a range's offsets
│   ├── RejectedByJobError            the record's producer: the job could not use it
│   ├── ClusterError                  nobody: the batch runs again under its id
│   │   ├── WorkerLostError           nobody, the first time; then it is bad data
│   │   └── SessionLostError          nobody: Spark's driver died during the job
│   ├── JobTimeoutError               the user: the job exceeded its timeout and was cancelled
│   └── JobStuckError                 the user: a cancelled job does not end; records stay unsettled
└── ChannelClosedError, DeliveryOrderError, UnexpectedEndError      us: a bug; fail loudly
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from reactive_kafka.records import TopicPartition

E = TypeVar("E", bound=BaseException)


class ReactiveKafkaError(Exception):
    """Base of every error this package raises."""


def text_of(error: BaseException) -> str:
    """Return an exception's text, or its class name if it has no text or ``__str__`` raises.

    For logs, health, headers and our own errors. The exception may be user code. Nothing that its
    ``__str__`` does (raising SystemExit, returning something else than a string) leaves this
    function: reporting one failure must not cause another.
    """
    try:
        text = str(error)
    except BaseException:
        # A real Ctrl-C does not arrive here: it goes through the loop's signal handler.
        text = ""
    return text or type(error).__name__


def describe(error: BaseException) -> str:
    """Return ``Class: text`` of an exception, or only its class. Never raises."""
    name = type(error).__name__
    text = text_of(error)
    return name if text == name else f"{name}: {text}"


# Loads the codec, which is not possible any more during interpreter shutdown.
"".encode("unicode_escape")


def without_frames(error: E) -> E:
    """Return the same error without tracebacks, so that it can be kept.

    A traceback keeps every object that the calls have worked with. If one of these keeps the error,
    only the cyclic garbage collector frees them, and it does not see how much memory they take.
    """
    seen = set[int]()
    todo: list[BaseException | None] = [error]
    while todo:
        current = todo.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = None
        todo += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            todo += current.exceptions
    return error


def escaped(text: str) -> str:
    r"""Return *text* with unprintable characters, such as line breaks, as escapes like ``\n``."""
    if text.isprintable():
        return text
    # Not by the codec "unicode_escape": Python imports that at its first use, which fails where no
    # descriptor is left.
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class ConfigError(ReactiveKafkaError, ValueError):
    """The configuration or a decorated handler cannot work. The text lists every problem found.

    ``problems`` has one line for each, with file, line, channel, key, value and what is allowed.
    Unprintable characters in keys and values are escaped, so that a problem stays one line.
    """

    def __init__(self, *problems: str) -> None:
        problems = tuple(map(escaped, problems))
        self.problems = problems
        head = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(
            f"{head} in the configuration:\n" + "\n".join(f"  - {problem}" for problem in problems)
        )


class MissingExtraError(ReactiveKafkaError, ImportError):
    """A feature needs an optional package. The text has the command that installs it."""

    def __init__(self, feature: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{feature} needs an extra: {how_to_install(extra)}")


def how_to_install(extra: str) -> str:
    """The command that installs an extra; it holds wherever the package came from."""
    return f"pip install '.[{extra}]' in a checkout; for other ways see docs/install.md"


class BrokerError(ReactiveKafkaError):
    """A call to the broker failed. ``__cause__`` is the client's own error."""


class TransientBrokerError(BrokerError):
    """The same call may succeed later: a broker is away, a leader moves, a deadline has passed."""


class OutcomeUnknownError(TransientBrokerError):
    """The deadline passed before the answer came: the request may have taken effect or not."""


class TransactionAbortedError(TransientBrokerError):
    """A Kafka transaction was not committed, but not because of its records. See ``__cause__``."""


class StoreAwayError(TransientBrokerError):
    """The checkpoint store cannot be reached, or did not answer in time.

    What was sent to it may have been stored.
    """

    # A call of the channel's failed, not a statement of the application's.
    by_store = False


class FatalBrokerError(BrokerError):
    """The operator must act: credentials, rights, or a topic that does not exist."""


class FencedError(FatalBrokerError):
    """Another consumer has taken over this one's ``group_instance_id``. Remove one of the two."""


class SchemaAwayError(TransientBrokerError):
    """A schema is not known yet, because its registry is away or has not answered.

    Nothing was sent.
    """


class CheckpointStoreError(FatalBrokerError):
    """The checkpoint store cannot begin or end transactions. The channel has stopped.

    The operator must act: ``__cause__`` is the store's own error, about rights, a password, or a
    row that cannot be read. The records of the transaction are left for the next start, whatever
    their handler does with this error.
    """


class RejectedRecordError(BrokerError):
    """The broker, or the client on its behalf, rejects this record: too large, or not allowed."""


class OffsetOutOfRangeError(BrokerError):
    """The partition's log does not hold the position any more, or not yet."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(f"offset {offset} of {partition} is outside the partition's log")


class CorruptRecordError(BrokerError):
    """A batch of the log cannot be read.

    Its checksum or codec is wrong, or it unpacks to more than ``max_unpacked_bytes``. ``offset`` is
    the position that cannot be read, ``until`` the position after the batch; None: its bytes do not
    say.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, reason: str, until: int | None = None
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.reason = reason
        self.until = until
        super().__init__(f"{partition} cannot be read at offset {offset}: {reason}")


class NotOwnerError(BrokerError):
    """The partition is not assigned to this member, or no longer. Its commit is dropped."""


class CheckpointRefusedError(NotOwnerError):
    """Another owner of the partition has written to the checkpoint store: this write is stale."""


class CorruptCheckpointError(BrokerError):
    """A row of the checkpoint store cannot be read, or is not ours. The text has the partition."""


class MetadataTooLargeError(BrokerError):
    """Metadata exceeds the broker's limit. Other partitions of the same request are committed.

    ``partitions`` are those that are not committed; empty if that is unknown.
    """

    def __init__(self, text: str, partitions: Iterable[TopicPartition] = ()) -> None:
        self.partitions = frozenset(partitions)
        super().__init__(text)


class PositionsRefusedError(BrokerError):
    """The broker refuses the positions of some partitions. Others of the request are stored.

    ``refused``: partition -> why.
    """

    def __init__(self, refused: Mapping[TopicPartition, BrokerError]) -> None:
        self.refused = dict(refused)
        super().__init__(
            "; ".join(f"{partition}: {error}" for partition, error in sorted(self.refused.items()))
        )


class CommitRefusedError(ReactiveKafkaError):
    """The position would pass an unsettled record, or move back. Nothing was committed."""


class SkipRefusedError(ReactiveKafkaError):
    """A record cannot be skipped by hand: the text says why."""


class CheckpointError(ReactiveKafkaError):
    """An impossible state or transaction: no store, a settled record, or a wrong order of calls."""


class AlreadyStoredError(CheckpointError):
    """An earlier transaction has stored the record after all: it is settled, as a duplicate.

    Handlers need not catch it. A loop over a channel's messages continues with the next one.
    """


class DecodeError(ReactiveKafkaError, ValueError):
    """A record's bytes do not fit what the channel or the handler expects.

    ``part`` is its ``value``, its ``key``, or the ``ordering key`` that a function derives from it.
    """

    part = "value"


class UnmatchedRecordError(ReactiveKafkaError):
    """No handler of the channel takes the record: no ``when`` is true, or no payload type fits."""


class EncodeError(ReactiveKafkaError, ValueError):
    """The channel's serializer cannot write the value. Nothing was sent."""


class HandlerError(ReactiveKafkaError):
    """A handler raised. ``__cause__`` is the user's exception."""

    def __init__(
        self, channel: str, partition: TopicPartition, offset: int, reason: BaseException
    ) -> None:
        self.channel = channel
        self.partition = partition
        self.offset = offset
        super().__init__(f"channel {channel!r}: {partition} offset {offset}: {describe(reason)}")


class CommitStrategyError(ReactiveKafkaError):
    """A custom commit strategy raised (``__cause__``) or returned no position.

    Nothing was committed.
    """

    def __init__(self, partition: TopicPartition, what: str) -> None:
        self.partition = partition
        super().__init__(f"the commit strategy failed for {partition}: {what}")


class PoisonError(ReactiveKafkaError):
    """A record was unsettled past ``unprocessed_record_max_age``. The channel has stopped."""


class RetryLaterError(ReactiveKafkaError):
    """A handler asked for its record to come again later. The reason in a delayed retry."""


class OffloadError(ReactiveKafkaError):
    """A Spark job failed, not because of single records. Every record of its batch is nacked."""


class BadDataError(OffloadError):
    """A Spark job failed on some of its records: smaller batches can isolate them."""


class DataLossError(OffloadError):
    """The log no longer holds all offsets of a range that executors should read.

    The text names the range.
    """


class JobTimeoutError(OffloadError):
    """A Spark job exceeded its ``timeout``. It was cancelled, and its last task has ended."""


class ClusterError(OffloadError):
    """A Spark job failed through no fault of its batch (no executors, no master). It runs again."""


class WorkerLostError(ClusterError):
    """A process that ran a task of the job died.

    The first time it counts as an accident, the second time as bad data.
    """


class SessionLostError(ClusterError):
    """Spark's driver died while the job was running. Another one is being started."""

    def __init__(self, text: str, *, was_alone: bool = True) -> None:
        # No other job was running, so nothing else can have killed the driver.
        self.was_alone = was_alone
        super().__init__(text)


class JobStuckError(OffloadError):
    """A cancelled Spark job does not end.

    It may still have effects, so its records stay unsettled.
    """


class RejectedByJobError(OffloadError):
    """A Spark job succeeded but could not use this record (``batch.reject``, or a bad payload)."""


class ChannelClosedError(ReactiveKafkaError):
    """The channel is not running: not started yet, failed, or stopped."""


class BufferFullError(ReactiveKafkaError):
    """An outgoing channel has ``max_in_flight`` unconfirmed records. Nothing was sent."""


class ReplyTimeoutError(ReactiveKafkaError, TimeoutError):
    """No reply came in time. The request may have been handled all the same."""

    by_outage = False
    """Whether a broker that the request or its reply needs was away."""


class UnexpectedEndError(ReactiveKafkaError):
    """One of our tasks was ended by a foreign cancellation, or another BaseException.

    That is ``__cause__``.
    """

    def __init__(self, task: str, cause: BaseException) -> None:
        super().__init__(f"the task {task!r} was ended by {describe(cause)}")


class DeliveryOrderError(ReactiveKafkaError):
    """A record was delivered out of order within its partition: a bug of ours or of the client."""

    def __init__(self, partition: TopicPartition, offset: int, position: int) -> None:
        super().__init__(
            f"{partition}: offset {offset} was delivered when the position was already {position}"
        )
