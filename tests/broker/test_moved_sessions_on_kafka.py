"""Fetch sessions on a real Kafka whose nodes end and start, lead in turns, and are read in their
rack.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aiokafka.admin import NewTopic

from reactive_kafka import TopicPartition
from reactive_kafka.broker.local_kafka import Node
from tests.broker.hazards.applications import KeepingConnector
from tests.broker.hazards.faults import until
from tests.broker.test_fetch_sessions_on_kafka import Fetches
from tests.broker.test_reach_on_kafka import admin, reading, send, topic
from tests.harness.kafka import KafkaCluster

__all__ = ["topic"]

pytestmark = pytest.mark.kafka

REBALANCED_S = 30.0


class Racks(KafkaCluster):
    """Three nodes, each in a rack of its own: a leader names the follower in a reader's rack."""

    def _write_config(self, node: Node) -> None:
        selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        self._properties |= {
            "broker.rack": f"rack{node.number}",
            "replica.selector.class": selector,
        }
        super()._write_config(node)


@pytest.fixture(scope="module")
def racks() -> Iterator[KafkaCluster]:
    with Racks(3) as kafka:
        yield kafka


async def test_a_broker_that_starts_again_has_another_session(topic: str) -> None:
    with KafkaCluster() as kafka:
        servers, seen = kafka.bootstrap_servers, list[tuple[int, int]]()
        async with admin(servers) as client:
            await client.create_topics([NewTopic(topic, 3, 1)])
        connector = KeepingConnector(servers)
        async with reading(servers, seen, topics=[topic], connector=connector) as app:
            await until(
                lambda: len(app.channel("orders").assignment) == 3, "all are assigned", REBALANCED_S
            )
            fetches = Fetches(connector.made[-1])
            await send(servers, topic, 0)
            await until(lambda: seen == [(0, 0)], "it is read")
            await until(
                lambda: bool(fetches.sessions[-1:]) and fetches.sessions[-1] > 0, "it has a session"
            )
            kafka.kill()
            kafka.start_node(1)
            for number in range(3):
                await send(servers, topic, number)
            await until(
                lambda: sorted(seen) == [(0, 0), (0, 1), (1, 0), (2, 0)], "all are read", 60
            )
            await until(
                lambda: len(fetches.sessions) > 1 and fetches.sessions[-1] > 0,
                "it has another one",
                60,
            )


async def test_a_partition_whose_leader_moves_is_read_in_the_session_of_the_next(
    racks: KafkaCluster, topic: str
) -> None:
    servers, seen = racks.bootstrap_servers, list[tuple[int, int]]()
    async with admin(servers) as client:
        # Two in sync are left, without which nothing is read.
        replicas = {0: [3, 1, 2], 1: [1, 2, 3], 2: [1, 2, 3]}
        await client.create_topics([NewTopic(topic, -1, -1, replica_assignments=replicas)])
    connector = KeepingConnector(servers)
    async with reading(servers, seen, topics=[topic], connector=connector) as app:
        await until(
            lambda: len(app.channel("orders").assignment) == 3, "all are assigned", REBALANCED_S
        )
        fetches = Fetches(connector.made[-1])
        for number in range(3):
            await send(servers, topic, number)
        await until(lambda: sorted(seen) == [(0, 0), (1, 0), (2, 0)], "all are read", 30)
        racks.terminate(3)
        try:
            alive = ",".join(racks.address(node) for node in (1, 2))
            for number in (0, 1, 2, 0):
                await send(alive, topic, number)
            # Node 3 may have had the group.
            wanted = {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1)}
            await until(lambda: set(seen) == wanted, "all are read", 60)
            assert (
                connector.made[-1].client.cluster.leader_for_partition(TopicPartition(topic, 0))
                == 1
            )
            assert len(fetches.under_way()) == 1
            assert fetches.held() == {0, 1, 2}
        finally:
            racks.start_node(3)


async def test_a_follower_in_the_same_rack_is_read_in_a_session_of_its_own(
    racks: KafkaCluster, topic: str
) -> None:
    servers, seen = racks.bootstrap_servers, list[tuple[int, int]]()
    async with admin(servers) as client:
        await client.create_topics(
            [NewTopic(topic, -1, -1, replica_assignments={0: [1, 2], 1: [1, 2]})]
        )
    connector = KeepingConnector(servers)
    async with reading(
        servers, seen, topics=[topic], connector=connector, **{"client.rack": "rack2"}
    ) as app:
        await until(
            lambda: len(app.channel("orders").assignment) == 2, "all are assigned", REBALANCED_S
        )
        consumer = connector.made[-1]
        states = consumer._reads.states
        await until(
            lambda: [state.replica for state in states.values()] == [2, 2],
            "it is named for both",
            30,
        )
        fetches = Fetches(connector.made[-1])
        for round in range(2):
            for number in range(2):
                await send(servers, topic, number)
            await until(lambda: len(seen) == 2 * round + 2, "all are read", 30)  # noqa: B023
        assert sorted(seen) == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert consumer.fetcher.was_answered(2)
        assert fetches.sessions[-1] > 0
        assert fetches.codes == {0}
