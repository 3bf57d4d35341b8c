"""For pytest: fixtures ``kafka``, a real broker, and ``memory_broker``, one in memory; tests in
virtual time.

Loaded by pytest by itself where reactive_kafka is installed: in test runs of others, too, so it
imports little.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from reactive_kafka.broker.memory.broker import MemoryBroker
    from reactive_kafka.testing.clock import FakeClock

BOOTSTRAP_VARIABLE = "REACTIVE_KAFKA_TEST_BOOTSTRAP"


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """``host:port`` of a real Apache Kafka, one for the whole session.

    ``REACTIVE_KAFKA_TEST_BOOTSTRAP=host:port`` names one that runs already; else it is started on
    this machine, from jars that Maven fetches once. Where that cannot be done, the tests that ask
    for it fail and say why.
    """
    given = os.environ.get(BOOTSTRAP_VARIABLE)
    if given:
        yield given
        return
    from reactive_kafka.broker.local_kafka import local_kafka

    with local_kafka() as address:
        yield address


@pytest.fixture
def memory_broker() -> MemoryBroker:
    """A new :class:`~reactive_kafka.testing.MemoryBroker`; hand its ``connector()`` to what is
    tested.
    """
    from reactive_kafka.broker.memory.broker import MemoryBroker

    return MemoryBroker()


@pytest.fixture
def virtual_time() -> FakeClock:
    """Has an async test run in virtual time; the :class:`~reactive_kafka.testing.FakeClock` that it
    runs by.
    """
    from reactive_kafka.testing.clock import FakeClock

    return FakeClock()


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, for ``--strict-markers``."""
    config.addinivalue_line(
        "markers",
        "virtual_time(seed=None): run the async test in virtual time: nothing is waited for (reactive_kafka)",
    )


# Before a plugin for async tests, which would run it in real time.
@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test in virtual time if it is marked so, or asks for the fixture."""
    marker = pyfuncitem.get_closest_marker("virtual_time")
    if marker is None and "virtual_time" not in pyfuncitem.fixturenames:
        return None
    # Not ``pyfuncitem.obj``: pytest-asyncio has put a plain function there, which runs it in real
    # time.
    owner = pyfuncitem.module if pyfuncitem.instance is None else pyfuncitem.instance
    function = getattr(owner, pyfuncitem.originalname)
    if not inspect.iscoroutinefunction(function):
        if marker is not None:
            pytest.fail(
                "@pytest.mark.virtual_time is for async tests: in others no loop runs",
                pytrace=False,
            )
        return None
    from reactive_kafka.testing.clock import run_in_virtual_time

    given = {
        name: pyfuncitem.funcargs[name]
        for name in inspect.signature(function).parameters
        if name in pyfuncitem.funcargs
    }
    run_in_virtual_time(
        lambda clock: function(**given),
        seed=None if marker is None else _seed_of(*marker.args, **marker.kwargs),
        clock=cast("FakeClock | None", pyfuncitem.funcargs.get("virtual_time")),
    )
    return True


def _seed_of(seed: int | None = None) -> int | None:
    """What the marker was given; a TypeError says what it takes."""
    return seed
