"""Fixtures of the tests of hazards."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.broker.contract import group as group
from tests.broker.hazards.faults import Rig, rigged
from tests.broker.test_kafka import cluster as cluster


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """A mock broker of its own behind a proxy."""
    async with rigged() as rig:
        yield rig
