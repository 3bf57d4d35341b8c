"""What a consumer's properties say about fetching. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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


def rack_problem(client_rack: str, broker_racks: Collection[str | None]) -> str | None:
    """Return why ``client_rack`` has no effect, in words for an operator; None: it may have one.

    A leader names a replica to fetch from only if that is in the rack of the client (KIP-392).
    Whether ``replica.selector.class`` is set on the brokers cannot be seen from here.

    Args:
        broker_racks: The racks of all brokers. Empty: no broker is known yet.
    """
    if not client_rack or not broker_racks or client_rack in broker_racks:
        return None
    known = sorted({rack for rack in broker_racks if rack})
    where = f"their racks are {', '.join(known)}" if known else "none of them has broker.rack set"
    return f"client_rack = {client_rack!r} has no effect: no broker is in that rack, {where}"
