"""Tools for testing applications: an in-memory broker, virtual time, spies on handlers."""

from reactive_kafka.broker.memory.broker import MemoryBroker
from reactive_kafka.testing.application import TestApp, record
from reactive_kafka.testing.fake_clock import (
    DeadlockError,
    FakeClock,
    VirtualTimeLoop,
    run_in_virtual_time,
)
from reactive_kafka.testing.settlement import NotSettledError
from reactive_kafka.testing.spies import HandlerCall, HandlerSpy

__all__ = [
    "DeadlockError",
    "FakeClock",
    "HandlerCall",
    "HandlerSpy",
    "MemoryBroker",
    "NotSettledError",
    "TestApp",
    "VirtualTimeLoop",
    "record",
    "run_in_virtual_time",
]
