"""The rules of failed records: what a nack becomes, what letters say, when a call is repeated.

All of it is pure. ``nacks/`` carries out what is decided here.
"""

from reactive_kafka.failure.decision import (
    Decision,
    FailedRecord,
    FailureStrategy,
    Skip,
    Stop,
    WriteLetter,
)
from reactive_kafka.failure.strategies import DeadLetterQueue, DelayedRetry, Fail, IgnoreFailure

__all__ = [
    "DeadLetterQueue",
    "Decision",
    "DelayedRetry",
    "Fail",
    "FailedRecord",
    "FailureStrategy",
    "IgnoreFailure",
    "Skip",
    "Stop",
    "WriteLetter",
]
