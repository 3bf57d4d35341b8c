"""Fixtures of all tests: those that users get, whether or not the package is installed here."""

from hypothesis import settings

from reactive_kafka.testing.plugin import kafka as kafka
from reactive_kafka.testing.plugin import memory_broker as memory_broker
from reactive_kafka.testing.plugin import pytest_configure as pytest_configure
from reactive_kafka.testing.plugin import pytest_pyfunc_call as pytest_pyfunc_call
from reactive_kafka.testing.plugin import virtual_time as virtual_time

settings.register_profile("any machine", deadline=None)  # how long an example takes says nothing on a busy one
settings.load_profile("any machine")
