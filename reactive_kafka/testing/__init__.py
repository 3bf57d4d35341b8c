"""For the tests of applications: an application on a broker in memory, time that a test turns,
records.
"""

from reactive_kafka.broker.memory.broker import MemoryBroker
from reactive_kafka.testing.app import TestApp, record
from reactive_kafka.testing.clock import (
    DeadlockError,
    FakeClock,
    VirtualTimeLoop,
    run_in_virtual_time,
)
from reactive_kafka.testing.settling import NotSettledError
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
