"""What spans say of a cluster: the broker that the configuration names first, and its id."""

from __future__ import annotations

import pytest

from reactive_kafka.tracing.clusters import ClusterAttributes, Clusters, server_attributes


@pytest.mark.parametrize(
    ("bootstrap_servers", "expected"),
    [
        ("kafka:9092", {"server.address": "kafka", "server.port": 9092}),
        ("a.shop:9092, b.shop:9093", {"server.address": "a.shop", "server.port": 9092}),
        ("[::1]:9092", {"server.address": "::1", "server.port": 9092}),
        ("kafka", {"server.address": "kafka"}),
        ("embedded", {}),
        (None, {}),
    ],
)
def test_the_first_bootstrap_server_is_the_address(
    bootstrap_servers: object, expected: dict[str, object]
) -> None:
    assert dict(server_attributes(bootstrap_servers)) == expected


def test_the_id_of_a_cluster_is_known_to_all_of_its_channels_once_one_has_learned_it() -> None:
    clusters = Clusters()
    orders = clusters.of("kafka:9092")
    invoices = clusters.of("kafka:9092")
    elsewhere = clusters.of("other:9092")
    orders.learn_id("MkU3OEVBNTcwNTJENDM2Qk")
    assert invoices.attributes["messaging.kafka.cluster.id"] == "MkU3OEVBNTcwNTJENDM2Qk"
    assert "messaging.kafka.cluster.id" not in elsewhere.attributes


def test_a_cluster_that_was_made_anew_has_its_new_id() -> None:
    cluster = ClusterAttributes("kafka:9092")
    cluster.learn_id("old")
    cluster.learn_id("new")
    assert cluster.attributes == {
        "server.address": "kafka",
        "server.port": 9092,
        "messaging.kafka.cluster.id": "new",
    }
