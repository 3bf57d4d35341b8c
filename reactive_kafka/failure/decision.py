"""What a failure becomes, as a value that somebody else carries out. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass

from reactive_kafka.config.schema import FailureStrategy, RetrySettings


@dataclass(frozen=True, slots=True)
class Retry:
    """Call the handler again after this many seconds."""

    after_s: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave the record unsettled and stop the channel."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Log and count it, and treat the record as settled."""


Decision = Stop | Skip


def after_attempt(attempt: int, retry: RetrySettings) -> Retry | None:
    """What follows attempt number *attempt* (1, 2, ...) when it has failed: another one, or None, which is a nack.

    The wait doubles from ``backoff`` up to ``max_backoff``.
    """
    if attempt >= retry.max_attempts:
        return None
    doublings = min(attempt - 1, 60)
    return Retry(min(retry.backoff_s * 2.0**doublings, retry.max_backoff_s))


def after_nack(strategy: FailureStrategy) -> Decision:
    """What the channel's failure strategy makes of a nacked record."""
    decisions: dict[FailureStrategy, Decision] = {"fail": Stop(), "ignore": Skip()}
    return decisions[strategy]
