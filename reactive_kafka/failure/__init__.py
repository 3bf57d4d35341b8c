"""What a nack becomes."""

from reactive_kafka.failure.decision import (
    Decision,
    FailedRecord,
    FailureStrategy,
    Skip,
    Stop,
    Write,
)
from reactive_kafka.failure.strategies import DeadLetterQueue, DelayedRetry, Fail, Ignore

__all__ = [
    "DeadLetterQueue",
    "Decision",
    "DelayedRetry",
    "Fail",
    "FailedRecord",
    "FailureStrategy",
    "Ignore",
    "Skip",
    "Stop",
    "Write",
]
