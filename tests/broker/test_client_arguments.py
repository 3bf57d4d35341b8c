"""Client properties become arguments of our client and of aiokafka's producer."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import pytest
from aiokafka import AIOKafkaProducer

from reactive_kafka.broker.aiokafka.client_arguments import OF_CONSUMERS
from reactive_kafka.broker.aiokafka.connections.client_settings import ClientSettings
from tests.config.values import properties_of_consumers, properties_of_producers


@pytest.mark.parametrize(
    ("properties", "client"),
    [(properties_of_consumers(), ClientSettings), (properties_of_producers(), AIOKafkaProducer)],
    ids=["consumer", "producer"],
)
def test_every_property_is_an_argument_of_the_client_or_of_the_tls_context(
    properties: Sequence[str], client: type
) -> None:
    keywords = inspect.signature(client).parameters.keys()
    of_tls = {name for name in properties if name.startswith("ssl_")}
    assert {*properties} - of_tls - OF_CONSUMERS <= keywords
