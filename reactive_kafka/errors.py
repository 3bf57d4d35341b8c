"""The public errors, by who must act.

ReactiveKafkaError
├── ConfigError (ValueError)          the user: names file, channel, key, value and what is allowed
├── MissingExtraError (ImportError)   the user: "pip install 'reactive-kafka[spark]'"
├── BrokerError                       raised at the seam only, with the client's error as __cause__
│   ├── TransientBrokerError          nobody: the same call may succeed later
│   │   ├── OutcomeUnknownError       nobody: it may or may not have taken effect
│   │   ├── TransactionAbortedError   nobody: nothing of the transaction counts, and its records are
handled again │   │   ├── StoreAwayError            nobody: the checkpoint store is unavailable; the
call is retried │   │   └── SchemaAwayError           nobody: the schema registry has not answered
yet; nothing was sent │   ├── FatalBrokerError              the operator: authentication,
authorisation, unknown topic │   │   ├── FencedError               the operator: two consumers have
one group_instance_id │   │   └── CheckpointStoreError      the operator: the checkpoint store
rejects a transaction, and the channel stops │   ├── RejectedRecordError           the user: the
broker rejects this record (too large, not allowed) │   ├── OffsetOutOfRangeError         the reset
policy: the log no longer holds the position │   ├── CorruptRecordError            the operator:
bytes of the log cannot be read; has the position │   ├── CorruptCheckpointError        the
operator: a row of the checkpoint store cannot be read │   ├── MetadataTooLargeError         nobody:
the position is committed without it │   ├── PositionsRefusedError         the operator: positions
of some partitions are refused, the others are stored │   └── NotOwnerError                 nobody:
the partition has moved on, and the commit is dropped │       └── CheckpointRefusedError    nobody:
a later owner has written to the checkpoint store ├── DecodeError (ValueError)          the producer
of the record; always becomes a nack ├── UnmatchedRecordError              the handlers' author:
none of the channel's takes the record; always a nack ├── EncodeError (ValueError)          the
sender: the serializer cannot write the value; nothing is sent ├── BufferFullError
the sender: too many records wait for the broker; nothing is sent ├── ReplyTimeoutError
(TimeoutError)  the requester: no reply came in time; the request may have been handled ├──
HandlerError                      the user's exception with topic, partition, offset; always becomes
a nack ├── CommitRefusedError                the caller: the position would pass an unsettled
record, or go back ├── CheckpointError                   the handler's author: an impossible state
or transaction │   └── AlreadyStoredError            nobody: the record is settled ├──
CommitStrategyError               the author of the strategy: it raised, or returned no position ├──
PoisonError                       the handler's author: a record was unsettled for too long ├──
RetryLaterError                   nobody: the handler asked for the record to come again later ├──
OffloadError                      a Spark job failed: every record of its batch is nacked │   ├──
BadDataError                  the producer of some records: smaller batches can isolate them │   ├──
DataLossError                 the operator: the log no longer holds all offsets of a range, which
the text names │   ├── RejectedByJobError            the producer of this record: the job could not
use it │   ├── ClusterError                  nobody: the batch runs again under its id │   │   ├──
WorkerLostError           nobody, the first time; then it is bad data │   │   └── SessionLostError
nobody: Spark's driver died during the job │   ├── JobTimeoutError               the user: the job
exceeded its timeout and has been cancelled │   └── JobStuckError                 the user: a
cancelled job does not end; its records stay unsettled └── ChannelClosedError, DeliveryOrderError,
UnexpectedEndError      us: a bug; fail loudly
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from reactive_kafka.records import TopicPartition

E = TypeVar("E", bound=BaseException)


class ReactiveKafkaError(Exception):
    """Base of every error this package raises."""


def text_of(error: BaseException) -> str:
    """The text of an exception, or the name of its class if it has none or its ``__str__`` raises.

    For logs, health, headers and our own errors. The exception may be user code: nothing that its
    ``__str__`` does (raising SystemExit, returning something else than a string) leaves this
    function, or reporting one failure would cause another.
    """
    try:
        text = str(error)
    except BaseException:
        # A real Ctrl-C does not arrive here: it goes through the loop's signal handler.
        text = ""
    return text or type(error).__name__


def describe(error: BaseException) -> str:
    """``Class: text`` of an exception, or its class alone; like :func:`text_of` it never raises."""
    name = type(error).__name__
    text = text_of(error)
    return name if text == name else f"{name}: {text}"


# Loads the codec, which is not possible any more during interpreter shutdown.
"".encode("unicode_escape")


def without_frames(error: E) -> E:
    """The same error, to be kept: it and its causes hold no frames any more, nor what is in their
    variables.

    An error that is kept with its traceback keeps every object that the calls have worked with. If
    one of these is where the error is kept, only the cyclic collector frees them, and that does not
    see how much memory they take.
    """
    seen = set[int]()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = None
        todo += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
    return error


def escaped(text: str) -> str:
    r"""*text* with line breaks, control characters and all else that cannot be printed as escapes
    such as ``\n``.
    """
    if text.isprintable():
        return text
    # Not by the codec "unicode_escape": Python imports that at its first use, which fails where no
    # descriptor is left.
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class ConfigError(ReactiveKafkaError, ValueError):
    """The configuration or a decorated handler cannot work; the text lists every problem found.

    ``problems`` has a line for each, with file, line, channel, key, value and what is allowed. It
    stays one line whatever the keys and values hold: what cannot be printed is escaped.
    """

    def __init__(self, *problems: str) -> None:
        problems = tuple(map(escaped, problems))
        self.problems = problems
        head = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(
            f"{head} in the configuration:\n" + "\n".join(f"  - {problem}" for problem in problems)
        )


class MissingExtraError(ReactiveKafkaError, ImportError):
    """A feature needs an optional package that is not installed; the text has the command that
    installs it.
    """

    def __init__(self, feature: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{feature} needs an extra: pip install 'reactive-kafka[{extra}]'")


class BrokerError(ReactiveKafkaError):
    """A call to the broker failed; the client's own error is ``__cause__``."""


class TransientBrokerError(BrokerError):
    """The same call may succeed later: a broker is unavailable, a leader is moving, a deadline has
    passed.
    """


class OutcomeUnknownError(TransientBrokerError):
    """The deadline passed before the answer came: the request may or may not have taken effect."""


class TransactionAbortedError(TransientBrokerError):
    """A transaction of Kafka's was not committed, through no fault of its records; ``__cause__``
    says why.
    """


class StoreAwayError(TransientBrokerError):
    """The checkpoint store cannot be reached, or did not answer in time; what was sent may have
    been stored.
    """

    # A call of the channel's failed, not a statement of the application's.
    by_store = False


class FatalBrokerError(BrokerError):
    """The operator must act: credentials, rights, or a topic that does not exist."""


class FencedError(FatalBrokerError):
    """Another consumer has taken over this one's ``group_instance_id``: one of the two must be
    removed.
    """


class SchemaAwayError(TransientBrokerError):
    """A schema is not known yet, because its registry is away or has not answered; nothing was
    sent.
    """


class CheckpointStoreError(FatalBrokerError):
    """The checkpoint store cannot begin or end transactions until the operator acts; the channel
    has stopped.

    The store's own error is ``__cause__``: rights, a password, a row that cannot be read. Records
    of the transaction are left for the next start, whatever their handler does with this error.
    """


class RejectedRecordError(BrokerError):
    """The broker, or the client on its behalf, rejects this record: it is too large, or not
    allowed.
    """


class OffsetOutOfRangeError(BrokerError):
    """The partition's log does not hold the position any more, or not yet."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(f"offset {offset} of {partition} is outside the partition's log")


class CorruptRecordError(BrokerError):
    """A batch of the log cannot be read: its checksum, its codec, or it unpacks to more than
    ``max_unpacked_bytes``.

    ``offset`` is the position that cannot be read, ``until`` the position behind the batch; None:
    its bytes do not say.
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
    """The partition is not assigned to this member, or no longer: its commit is dropped."""


class CheckpointRefusedError(NotOwnerError):
    """Another owner of the partition has written to the checkpoint store: what this one would write
    is stale.
    """


class CorruptCheckpointError(BrokerError):
    """The checkpoint store's row of a partition cannot be read, or is not ours; the text names
    it.
    """


class MetadataTooLargeError(BrokerError):
    """Metadata exceeds the broker's limit; other partitions of the same request are committed.

    ``partitions`` are those that are not committed; empty if that is unknown.
    """

    def __init__(self, text: str, partitions: Iterable[TopicPartition] = ()) -> None:
        self.partitions = frozenset(partitions)
        super().__init__(text)


class PositionsRefusedError(BrokerError):
    """The broker refuses the positions of some partitions; all others of the same request are
    stored.

    ``refused``: partition -> why.
    """

    def __init__(self, refused: Mapping[TopicPartition, BrokerError]) -> None:
        self.refused = dict(refused)
        super().__init__(
            "; ".join(f"{partition}: {error}" for partition, error in sorted(self.refused.items()))
        )


class CommitRefusedError(ReactiveKafkaError):
    """The position would pass an unsettled record, or move back: nothing was committed."""


class CheckpointError(ReactiveKafkaError):
    """An impossible state or transaction: the channel has no store, the record is settled, or the
    order is wrong.
    """


class AlreadyStoredError(CheckpointError):
    """An earlier transaction has stored the record after all: it is settled, and counted as a
    duplicate.

    Handlers need not catch it. A loop over a channel's messages continues with the next one.
    """


class DecodeError(ReactiveKafkaError, ValueError):
    """A record's bytes do not fit what the channel or the handler expects.

    ``part`` is its ``value``, its ``key``, or the ``ordering key`` that a function derives from it.
    """

    part = "value"


class UnmatchedRecordError(ReactiveKafkaError):
    """No handler of the channel takes the record: of none ``when`` is true, or its payload's
    type.
    """


class EncodeError(ReactiveKafkaError, ValueError):
    """The channel's serializer cannot write the value; nothing was sent."""


class HandlerError(ReactiveKafkaError):
    """A handler raised; the user's exception is ``__cause__``."""

    def __init__(
        self, channel: str, partition: TopicPartition, offset: int, reason: BaseException
    ) -> None:
        self.channel = channel
        self.partition = partition
        self.offset = offset
        super().__init__(f"channel {channel!r}: {partition} offset {offset}: {describe(reason)}")


class CommitStrategyError(ReactiveKafkaError):
    """A custom commit strategy raised (``__cause__``) or did not return a position; nothing was
    committed.
    """

    def __init__(self, partition: TopicPartition, what: str) -> None:
        self.partition = partition
        super().__init__(f"the commit strategy failed for {partition}: {what}")


class PoisonError(ReactiveKafkaError):
    """A record was unsettled for longer than ``unprocessed_record_max_age``; the channel has
    stopped.
    """


class RetryLaterError(ReactiveKafkaError):
    """A handler asked for its record to come again later; told as what a delayed retry failed
    with.
    """


class OffloadError(ReactiveKafkaError):
    """A Spark job failed, and not because of single records: every record of its batch is nacked
    with this.
    """


class BadDataError(OffloadError):
    """A Spark job failed on some of its records: smaller batches can isolate them."""


class DataLossError(OffloadError):
    """The log no longer holds all offsets of a range that executors should read; the text names the
    range.
    """


class JobTimeoutError(OffloadError):
    """A Spark job exceeded its ``timeout``; it was cancelled, and its last task has ended."""


class ClusterError(OffloadError):
    """A Spark job failed through no fault of its batch (no executors, no master): it runs again."""


class WorkerLostError(ClusterError):
    """A process that ran a task of the job died: an accident the first time, bad data the second
    time.
    """


class SessionLostError(ClusterError):
    """Spark's driver died while the job was running; another one is being started."""

    def __init__(self, text: str, *, was_alone: bool = True) -> None:
        # No other job was running, so nothing else can have killed the driver.
        self.was_alone = was_alone
        super().__init__(text)


class JobStuckError(OffloadError):
    """A cancelled Spark job does not end: it may still have effects, so its records stay
    unsettled.
    """


class RejectedByJobError(OffloadError):
    """A Spark job succeeded but could not use this record (``batch.reject``, or a corrupt
    payload).
    """


class ChannelClosedError(ReactiveKafkaError):
    """The channel is not running: not started yet, failed, or stopped."""


class BufferFullError(ReactiveKafkaError):
    """An outgoing channel has ``max_in_flight`` records that the broker has not confirmed; nothing
    was sent.
    """


class ReplyTimeoutError(ReactiveKafkaError, TimeoutError):
    """No reply came within the time of a request, which may have been handled all the same."""

    by_outage = False
    """Whether a broker that the request or its reply needs was away."""


class UnexpectedEndError(ReactiveKafkaError):
    """One of our tasks was ended by a cancellation that is not ours, or by another BaseException
    (``__cause__``).
    """

    def __init__(self, task: str, cause: BaseException) -> None:
        super().__init__(f"the task {task!r} was ended by {describe(cause)}")


class DeliveryOrderError(ReactiveKafkaError):
    """A record was delivered out of order within its partition: a bug of ours or of the client."""

    def __init__(self, partition: TopicPartition, offset: int, position: int) -> None:
        super().__init__(
            f"{partition}: offset {offset} was delivered when the position was already {position}"
        )
