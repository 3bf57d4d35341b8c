"""Which timestamps a topic keeps, by its retention and its limits. No I/O, no clock.

Source: Kafka's topic configs ``cleanup.policy``, ``retention.ms``, ``message.timestamp.*``;
KIP-937.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RETENTION = "retention.ms"
POLICY = "cleanup.policy"
KIND = "message.timestamp.type"
BEFORE = "message.timestamp.before.max.ms"
AFTER = "message.timestamp.after.max.ms"
DIFFERENCE = "message.timestamp.difference.max.ms"
"""In brokers before 4.0 this is both of the two above."""

CONFIGS = (RETENTION, POLICY, KIND, BEFORE, AFTER, DIFFERENCE)
"""The configs of a topic that decide which timestamps it keeps."""


@dataclass(frozen=True, slots=True)
class TimestampLimits:
    """The timestamps that a topic keeps.

    Attributes:
        oldest: Config -> how old a record may be, in milliseconds.
        latest: Config -> how far in the future a timestamp may be, in milliseconds.
    """

    oldest: Mapping[str, int]
    latest: Mapping[str, int]

    def against(self, timestamp_ms: int, now_ms: int) -> str | None:
        """Return the config, with its value, that forbids this timestamp; None if none does."""
        age_ms = now_ms - timestamp_ms
        for name, limit_ms in self.oldest.items():
            if age_ms > limit_ms:
                return f"{name} = {limit_ms}"
        for name, limit_ms in self.latest.items():
            if -age_ms > limit_ms:
                return f"{name} = {limit_ms}"
        return None


NO_LIMITS = TimestampLimits({}, {})


def limits_of(configs: Mapping[str, str | None]) -> TimestampLimits:
    """Return the limits that the configs of a topic (name -> value) set."""
    if configs.get(KIND) == "LogAppendTime":
        # The broker replaces the timestamp by its own time, so the record's does not matter.
        return NO_LIMITS
    oldest: dict[str, int] = {}
    latest: dict[str, int] = {}
    retention_ms = _number(configs, RETENTION)
    policy = configs.get(POLICY)
    is_deleted_by_age = policy is None or "delete" in policy
    if is_deleted_by_age and retention_ms is not None:
        oldest[RETENTION] = retention_ms
    for limits, names in ((oldest, (BEFORE, DIFFERENCE)), (latest, (AFTER, DIFFERENCE))):
        for name in names:
            limit_ms = _number(configs, name)
            if limit_ms is not None:
                limits[name] = limit_ms
    return TimestampLimits(oldest, latest)


def _number(configs: Mapping[str, str | None], name: str) -> int | None:
    """Return milliseconds; None without this config, or without a limit (-1)."""
    text = configs.get(name)
    if text is None or not text.isdecimal():
        return None
    return int(text)
