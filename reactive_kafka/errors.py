"""Every error of the package, split by who must act.

ReactiveKafkaError
├── ConfigError (ValueError)          the user: names file, channel, key, value and what is allowed
├── MissingExtraError (ImportError)   the user: "pip install 'reactive-kafka[spark]'"
├── BrokerError                       raised at the seam only, with the client's error as __cause__
│   ├── TransientBrokerError          nobody: the same call may succeed later
│   │   ├── OutcomeUnknownError       nobody: it may or may not have taken effect
│   │   └── StoreAwayError            nobody: the checkpoint store is away; it is tried again
│   ├── FatalBrokerError              the operator: authentication, authorisation, unknown topic
│   │   ├── FencedError               the operator: two consumers have one group_instance_id
│   │   └── CheckpointStoreError      the operator: the checkpoint store refuses a transaction, and the channel stops
│   ├── RejectedRecordError           the user: the broker refuses this record (too large, not allowed)
│   ├── OffsetOutOfRangeError         the reset policy: the position is not in the log any more
│   ├── CorruptRecordError            the operator: bytes of the log cannot be read, position given
│   ├── CorruptCheckpointError        the operator: a row of the checkpoint store cannot be read
│   ├── MetadataTooLargeError         nobody: the broker takes less of it; the position goes without
│   └── NotOwnerError                 nobody: the partition moved on, drop the commit
│       └── CheckpointRefusedError    nobody: another owner has written to the checkpoint store since
├── DecodeError (ValueError)          the producer of the record: always becomes a nack
├── EncodeError (ValueError)          the sender: a value that its serializer cannot write; nothing is sent
├── HandlerError                      the user's exception with topic, partition, offset; always becomes a nack
├── CommitRefusedError                the caller: the position would pass an unsettled record, or go back
├── CheckpointError                   the handler's author: a state or a transaction that cannot be
│   └── AlreadyStoredError            nobody: the record is settled
├── CommitStrategyError               the custom commit strategy's author: it raised, or its answer is none
├── PoisonError                       the handler's author: a record was left without a verdict for too long
├── OffloadError                      a Spark job failed: every record of its batch is nacked
│   ├── BadDataError                  the producer of some records: smaller batches can find out which
│   ├── DataLossError                 the operator: offsets of a range are not in the log any more, the text names it
│   ├── RejectedByJobError            the producer of this record: the job could not use it
│   ├── ClusterError                  nobody: the batch runs again under its id
│   │   ├── WorkerLostError           nobody, the first time; then it is bad data
│   │   └── SessionLostError          nobody: Spark's driver went away under the job
│   ├── JobTimeoutError               the user: the job was cancelled for its timeout, and is over
│   └── JobStuckError                 the user: a cancelled job does not end, its records stay unsettled
└── ChannelClosedError, DeliveryOrderError, UnexpectedEndError      us: a bug; fail loudly
"""

from __future__ import annotations

from collections.abc import Iterable

from reactive_kafka.records import TopicPartition


class ReactiveKafkaError(Exception):
    """Base of every error this package raises."""


def text_of(error: BaseException) -> str:
    """What an exception says; the name of its class where it says nothing, or its ``__str__`` raises.

    For logs, health, headers and our own errors. The exception may be anybody's: whatever its ``__str__`` does (raise,
    also SystemExit; return what is no string) stays in here, or telling of one failure would be another.
    """
    try:
        text = str(error)
    except BaseException:  # its class is all that can be said; a real Ctrl-C goes through the loop's signal handler
        text = ""
    return text or type(error).__name__


def describe(error: BaseException) -> str:
    """``Class: text`` of an exception, or its class alone; raises nothing, whoever wrote the exception."""
    name, text = type(error).__name__, text_of(error)
    return name if text == name else f"{name}: {text}"


class ConfigError(ReactiveKafkaError, ValueError):
    """The configuration or a decorated handler cannot work; the text lists every problem found.

    Args:
        problems: One line each: file, line, channel, key, value and what is allowed.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        head = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{head} in the configuration:\n" + "\n".join(f"  - {problem}" for problem in problems))


class MissingExtraError(ReactiveKafkaError, ImportError):
    """A feature needs an optional package that is not installed; the text is the command that installs it."""

    def __init__(self, feature: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{feature} needs an extra: pip install 'reactive-kafka[{extra}]'")


class BrokerError(ReactiveKafkaError):
    """A call to the broker failed; the client's own error is ``__cause__``."""


class TransientBrokerError(BrokerError):
    """The same call may succeed later: a broker is away, a leader moves, a deadline passed."""


class OutcomeUnknownError(TransientBrokerError):
    """The deadline passed with the request on its way: it may or may not have taken effect."""


class StoreAwayError(TransientBrokerError):
    """The checkpoint store cannot be reached, or did not answer in time; what was sent may have been stored.

    Attributes:
        by_store: The channel's own calls of the store say so; else a statement of the application's does.
    """

    by_store = False


class FatalBrokerError(BrokerError):
    """The operator must act: credentials, rights, or a topic that does not exist."""


class FencedError(FatalBrokerError):
    """Another consumer has taken this one's ``group_instance_id``, for good: one of the two has to go."""


class CheckpointStoreError(FatalBrokerError):
    """The checkpoint store cannot begin or end transactions before somebody has acted: the channel has stopped for it.

    The store's own error is ``__cause__``: the rights, the password, a row that cannot be read. Records of the
    transaction are left for the next start, whatever their handler makes of this error.
    """


class RejectedRecordError(BrokerError):
    """The broker (or the client on its behalf) refuses this very record: too large, or not allowed."""


class OffsetOutOfRangeError(BrokerError):
    """The position is not in the partition's log any more, or not yet."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(f"offset {offset} of {partition} is outside the partition's log")


class CorruptRecordError(BrokerError):
    """A batch of the log cannot be read (checksum, codec); it starts at or after ``offset``."""

    def __init__(self, partition: TopicPartition, offset: int, reason: str) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(f"{partition} cannot be read at offset {offset}: {reason}")


class NotOwnerError(BrokerError):
    """The partition is not, or no longer, assigned to this member: its commit is dropped."""


class CheckpointRefusedError(NotOwnerError):
    """Another owner of the partition has written to the checkpoint store since: what this one would write is stale."""


class CorruptCheckpointError(BrokerError):
    """What the checkpoint store holds for a partition cannot be read, or is not ours; the text names it."""


class MetadataTooLargeError(BrokerError):
    """The broker takes less metadata than was sent; the positions of other partitions in the request are stored.

    Attributes:
        partitions: Those that are not stored; empty: nobody knows which.
    """

    def __init__(self, text: str, partitions: Iterable[TopicPartition] = ()) -> None:
        self.partitions = frozenset(partitions)
        super().__init__(text)


class CommitRefusedError(ReactiveKafkaError):
    """A position that would pass an unsettled record, or go back: nothing was committed."""


class CheckpointError(ReactiveKafkaError):
    """A state or a transaction that cannot be: of a channel without a store, of a settled record, out of order."""


class AlreadyStoredError(CheckpointError):
    """A transaction of before has stored the record after all: it is settled, and counted as a duplicate.

    Handlers of the application's need not look out for it; who iterates over a channel goes on with the next message.
    """


class DecodeError(ReactiveKafkaError, ValueError):
    """A record's bytes do not fit what the channel or the handler expects.

    Attributes:
        part: Of the record: its ``value``, its ``key``, or the ``ordering key`` that a function makes of it.
    """

    part = "value"


class EncodeError(ReactiveKafkaError, ValueError):
    """A value cannot be written in the format of its channel; nothing was sent."""


class HandlerError(ReactiveKafkaError):
    """A handler raised; the user's exception is ``__cause__``."""

    def __init__(self, channel: str, partition: TopicPartition, offset: int, reason: BaseException) -> None:
        self.channel = channel
        self.partition = partition
        self.offset = offset
        super().__init__(f"channel {channel!r}: {partition} offset {offset}: {describe(reason)}")


class CommitStrategyError(ReactiveKafkaError):
    """A custom commit strategy raised (``__cause__``), or answered with what is no position; nothing was committed."""

    def __init__(self, partition: TopicPartition, what: str) -> None:
        self.partition = partition
        super().__init__(f"the commit strategy failed for {partition}: {what}")


class PoisonError(ReactiveKafkaError):
    """A record was left without a verdict for longer than the channel allows; the channel has stopped."""


class OffloadError(ReactiveKafkaError):
    """A Spark job failed, and would fail for each of its records: every record of its batch is nacked with this."""


class BadDataError(OffloadError):
    """A Spark job failed on some of its records: smaller batches can find out which."""


class DataLossError(OffloadError):
    """Executors could not read a range whole: offsets of it are not in the log any more; the text names the range."""


class JobTimeoutError(OffloadError):
    """A Spark job was cancelled for its ``timeout``, and its last task has ended."""


class ClusterError(OffloadError):
    """A Spark job failed through no fault of its batch (no executors, the master gone): it is to run again."""


class WorkerLostError(ClusterError):
    """A process that ran a task of the job died: an accident the first time, bad data if it comes again."""


class SessionLostError(ClusterError):
    """Spark's driver went away while the job ran; another one is on its way.

    Attributes:
        was_alone: No other job ran beside it, so that nothing else can have ended the driver.
    """

    def __init__(self, text: str, *, was_alone: bool = True) -> None:
        self.was_alone = was_alone
        super().__init__(text)


class JobStuckError(OffloadError):
    """A cancelled Spark job does not end: what it still does nobody knows, so its records stay unsettled."""


class RejectedByJobError(OffloadError):
    """A Spark job has worked and told that it could not use this record (``batch.reject``, or a corrupt payload)."""


class ChannelClosedError(ReactiveKafkaError):
    """The channel is not running: not started yet, failed, or stopped."""


class UnexpectedEndError(ReactiveKafkaError):
    """A task of ours was ended by what is no ordinary exception (``__cause__``): a cancellation that is not ours."""

    def __init__(self, task: str, cause: BaseException) -> None:
        super().__init__(f"the task {task!r} was ended by {describe(cause)}")


class DeliveryOrderError(ReactiveKafkaError):
    """A record was delivered out of order within its partition: a bug of ours or of the client."""

    def __init__(self, partition: TopicPartition, offset: int, position: int) -> None:
        super().__init__(f"{partition}: offset {offset} was delivered when the position was {position} already")
