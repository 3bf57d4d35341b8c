"""Fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.schemas.server import RegistryServer, registry_server


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    """A schema registry on the loopback interface."""
    with registry_server() as server:
        yield server


@pytest.fixture
def confluent(registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    """Confluent's own client of that registry."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client
