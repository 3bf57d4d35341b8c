"""Fixtures of all tests: those that users get, whether or not the package is installed here."""

from reactive_kafka.testing.plugin import kafka as kafka
from reactive_kafka.testing.plugin import memory_broker as memory_broker
