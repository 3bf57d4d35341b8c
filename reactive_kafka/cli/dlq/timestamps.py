"""Which timestamps a topic keeps: what its retention deletes, and what it refuses. No I/O, no
clock.

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
"""Both of the two above, in brokers before 4.0."""

CONFIGS = (RETENTION, POLICY, KIND, BEFORE, AFTER, DIFFERENCE)
"""The configs of a topic that decide."""


@dataclass(frozen=True, slots=True)
class TimestampLimits:
    """What a topic does with a record because of its timestamp, by the configs that say so; all in
    milliseconds.

    Attributes:
        oldest: Config -> how old a record may be.
        latest: Config -> how far in the future its timestamp may be.
    """

    oldest: Mapping[str, int]
    latest: Mapping[str, int]

    def against(self, timestamp_ms: int, now_ms: int) -> str | None:
        """The config, with its value, by which a record with this timestamp would not stay; None:
        it stays.
        """
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
    """What the configs of a topic (name -> value) say of timestamps."""
    if configs.get(KIND) == "LogAppendTime":
        # The broker puts its own time in place of the record's, and so neither deletes nor refuses.
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
    """Milliseconds; None: the broker does not have this config, or it says that there is no limit
    (-1).
    """
    text = configs.get(name)
    if text is None or not text.isdecimal():
        return None
    return int(text)
