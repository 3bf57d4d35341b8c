"""Fixtures for pytest: ``kafka``, a real broker, and ``memory_broker``, one in memory.

Loaded by pytest by itself where reactive_kafka is installed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from reactive_kafka.broker.memory.broker import MemoryBroker

BOOTSTRAP_VARIABLE = "REACTIVE_KAFKA_TEST_BOOTSTRAP"


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """``host:port`` of a real Apache Kafka, one for the whole session.

    ``REACTIVE_KAFKA_TEST_BOOTSTRAP=host:port`` names one that runs already; else it is started on this machine,
    from jars that Maven fetches once. Where that cannot be done, the tests that ask for it fail and say why.
    """
    given = os.environ.get(BOOTSTRAP_VARIABLE)
    if given:
        yield given
        return
    from reactive_kafka.broker.local import local_kafka

    with local_kafka() as address:
        yield address


@pytest.fixture
def memory_broker() -> MemoryBroker:
    """A new :class:`~reactive_kafka.testing.MemoryBroker`; hand its ``connector()`` to what is tested."""
    from reactive_kafka.broker.memory.broker import MemoryBroker

    return MemoryBroker()
