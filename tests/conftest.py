"""Fixtures of all tests: those that users get, whether or not the package is installed here."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings

from reactive_kafka.testing.plugin import kafka as kafka
from reactive_kafka.testing.plugin import memory_broker as memory_broker
from reactive_kafka.testing.plugin import pytest_configure as pytest_configure
from reactive_kafka.testing.plugin import pytest_pyfunc_call as pytest_pyfunc_call
from reactive_kafka.testing.plugin import virtual_time as virtual_time

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    from tests.schemas.server import RegistryServer

# How long an example takes says nothing on a busy one.
settings.register_profile("any machine", deadline=None)
# Of a planted bug any failure is enough. Shrinking it takes half an hour where each attempt waits
# for a deadline.
settings.register_profile(
    "without shrinking", deadline=None, phases=set(Phase) - {Phase.shrink, Phase.explain}
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "any machine"))


@pytest.fixture(scope="session", autouse=True)
def make_starts_afresh() -> Iterator[None]:
    """The `make` that a test runs is a top-level one, although `make test` may run the test.

    Make passes its flags and its depth to its children. A nested make prints which folder it enters
    and leaves, and would wait for job slots of the outer one.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def children_heed_signals() -> Iterator[None]:
    """Processes that tests start heed signals, although this one may ignore them.

    Under nohup SIGHUP is ignored, and in a background job of a script SIGINT and SIGQUIT. A child
    would inherit that. It does not inherit a handler, so a handler that does nothing takes the
    place of each ignored signal.
    """
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
    ignored = [number for number in numbers if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """A test fails if a Kafka client of it is still connected when its event loop has ended.

    Python would find the socket later, in a test that has nothing to do with it.
    """
    if "reactive_kafka.broker.aiokafka.connections.broker_connection" not in sys.modules:
        return
    from tests.harness.open_connections import take_left_open

    left = take_left_open()
    assert not left, f"connections are open, and their event loop has ended: {', '.join(left)}"


@pytest.fixture(autouse=True)
def ends_in_time() -> Iterator[None]:
    """With ``TEST_LIMIT_S`` a test that runs longer fails, also in an event loop that only turns.

    A planted bug may make a test run for ever, which is to be a failure with the name of the test.
    """
    limit_s = float(os.environ.get("TEST_LIMIT_S", "0"))
    if not limit_s:
        yield
        return

    def give_up(*_: object) -> None:
        # Event loops end at this, and pytest reports it as the failure of a test.
        raise SystemExit(f"the test has not ended within {limit_s:g} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    """A schema registry on the loopback interface."""
    from tests.schemas.server import registry_server

    with registry_server() as server:
        yield server


@pytest.fixture
def confluent(registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    """Confluent's own client of that registry."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client
