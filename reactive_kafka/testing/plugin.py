"""The pytest plugin: fixtures ``kafka`` and ``memory_broker``, and tests in virtual time.

pytest loads it wherever reactive_kafka is installed, also in test runs of other projects. So it
imports little at the top.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from reactive_kafka.broker.memory.broker import MemoryBroker
    from reactive_kafka.testing.fake_clock import FakeClock

BOOTSTRAP_VARIABLE = "REACTIVE_KAFKA_TEST_BOOTSTRAP"


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """``host:port`` of a real Apache Kafka, one for the whole session.

    ``REACTIVE_KAFKA_TEST_BOOTSTRAP=host:port`` names one that runs already. Otherwise one is
    started on this machine, from jars that Maven fetches once. If that fails, the tests that use
    the fixture fail and say why.
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
    """A new :class:`~reactive_kafka.testing.MemoryBroker`; pass its ``connector()`` to an App."""
    from reactive_kafka.broker.memory.broker import MemoryBroker

    return MemoryBroker()


@pytest.fixture
def virtual_time() -> FakeClock:
    """The :class:`~reactive_kafka.testing.FakeClock` of an async test that runs in virtual time."""
    from reactive_kafka.testing.fake_clock import FakeClock

    return FakeClock()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, or ``--strict-markers`` would refuse it."""
    config.addinivalue_line(
        "markers",
        "virtual_time(seed=None): run the async test in virtual time, where no wait takes real time"
        " (reactive_kafka)",
    )


# First, because plugins for async tests would run the test in real time.
@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test in virtual time if it has the marker or the fixture ``virtual_time``."""
    marker = pyfuncitem.get_closest_marker("virtual_time")
    if marker is None and "virtual_time" not in pyfuncitem.fixturenames:
        return None
    # `pyfuncitem.obj` is not used: pytest-asyncio has replaced it by a plain function that runs
    # the test in real time.
    owner = pyfuncitem.module if pyfuncitem.instance is None else pyfuncitem.instance
    function = getattr(owner, pyfuncitem.originalname)
    if not inspect.iscoroutinefunction(function):
        if marker is not None:
            pytest.fail(
                "@pytest.mark.virtual_time is for async tests only: other tests run no event loop",
                pytrace=False,
            )
        return None
    from reactive_kafka.testing.fake_clock import run_in_virtual_time

    arguments = {
        name: pyfuncitem.funcargs[name]
        for name in inspect.signature(function).parameters
        if name in pyfuncitem.funcargs
    }
    seed = None if marker is None else _seed_of(*marker.args, **marker.kwargs)
    clock = cast("FakeClock | None", pyfuncitem.funcargs.get("virtual_time"))
    run_in_virtual_time(lambda _: function(**arguments), seed=seed, clock=clock)
    return True


def _seed_of(seed: int | None = None) -> int | None:
    """Return the marker's seed; wrong arguments of the marker raise Python's own TypeError."""
    return seed
