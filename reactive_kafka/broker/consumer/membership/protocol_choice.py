"""With which protocol a group is joined: ``group_protocol``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

CLASSIC = "classic"
CONSUMER = "consumer"
AUTO = "auto"
"""The values of ``group_protocol``."""
GROUP_FEATURE = "group.version"
"""The feature of a cluster that has the consumer protocol, at level 1 and above (KIP-848)."""


def configured_protocol(group_protocol: str, assignors: Sequence[str] | None) -> str | None:
    """Return the protocol that the configuration asks for; None: the cluster decides.

    Args:
        group_protocol: The setting.
        assignors: The assignors of the classic protocol, if any are named. The consumer protocol
            would ignore them: there the broker assigns.
    """
    if group_protocol != AUTO:
        return group_protocol
    return None if assignors is None else CLASSIC


def has_consumer_protocol(features: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a cluster has the consumer protocol switched on.

    Kafka 3.7 to 3.9 know its requests and refuse them, and an operator can switch it off in newer
    ones. So the cluster's feature ``group.version`` decides.

    Args:
        features: The finalized features in an answer to ApiVersions.
    """
    return any(one["name"] == GROUP_FEATURE and one["max_version_level"] > 0 for one in features)
