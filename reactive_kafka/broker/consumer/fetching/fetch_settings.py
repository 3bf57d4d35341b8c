"""What a consumer's properties say about fetching. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}
"""Kafka's names and numbers."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How one consumer fetches, under Kafka's names.

    ``idle_s``: how long an idle fetch may be repeated before its answer is looked at again.
    """

    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 8_000_000
    max_partition_fetch_bytes: int = 1_048_576
    isolation_level: str = "read_uncommitted"
    client_rack: str = ""
    metadata_max_age_ms: int = 300_000
    idle_s: float = 0.0

    @classmethod
    def of(cls, properties: Mapping[str, Any], idle_s: float) -> FetchSettings:
        """Return the settings in *properties*, with Kafka's defaults for the others.

        Raises:
            ValueError: There is no such isolation level.
        """
        numbers = {
            name: int(properties[name])
            for name in (
                "fetch_max_wait_ms",
                "fetch_min_bytes",
                "fetch_max_bytes",
                "max_partition_fetch_bytes",
                "metadata_max_age_ms",
            )
            if name in properties
        }
        isolation_level = str(properties.get("isolation_level", "read_uncommitted"))
        if isolation_level not in ISOLATION_LEVELS:
            raise ValueError(
                f"isolation_level = {isolation_level!r}: one of {', '.join(ISOLATION_LEVELS)}"
            )
        rack = str(properties.get("client_rack") or "")
        return cls(**numbers, isolation_level=isolation_level, client_rack=rack, idle_s=idle_s)

    @property
    def read_committed(self) -> bool:
        """True if records of open and aborted transactions are not read."""
        return self.isolation_level == "read_committed"
