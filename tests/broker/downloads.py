"""Jars that are downloaded, for tests of the rooms that need some."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka.broker.jar_hashes import SHA256
from reactive_kafka.broker.jars import KafkaUnavailableError


def pinned_jars() -> set[str]:
    """The names of the jars whose SHA-256 is known."""
    return set(SHA256)


def cannot_be_had(why: str) -> Any:
    """Expect that a jar cannot be had on this machine."""
    return pytest.raises(KafkaUnavailableError, match=why)
