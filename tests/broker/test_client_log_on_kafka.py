"""Outages of a real Kafka: the log has our events, and no line of aiokafka's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from reactive_kafka import App
from reactive_kafka.events import BrokerUnavailable, SendFailed, TopicMissing
from tests.app.helpers import Recorder
from tests.broker.hazards.faults import until
from tests.harness.kafka import KafkaCluster

pytestmark = pytest.mark.kafka

AWAY_S = 9.0
"""Longer than the sessions of the groups, and than send_timeout."""
CLIENT = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000}


@pytest.fixture(scope="module")
def node() -> Iterator[KafkaCluster]:
    """A Kafka of one node, whose groups wait for nobody, and which creates no topics."""
    calm = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
    with KafkaCluster(properties=calm) as cluster:
        yield cluster


@contextmanager
def lines_of_the_client() -> Iterator[list[str]]:
    """What aiokafka logs as a warning or worse."""
    lines = list[str]()

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING:
                lines.append(f"{record.name}:{record.lineno}: {record.getMessage()}")

    noting = Noting()
    logging.getLogger("aiokafka").addHandler(noting)
    try:
        yield lines
    finally:
        logging.getLogger("aiokafka").removeHandler(noting)


@pytest.mark.parametrize(
    ("how", "strategy"), [("killed", "range"), ("frozen", "roundrobin"), ("killed", "sticky")]
)
async def test_while_the_only_node_is_away_the_client_logs_no_warning(
    node: KafkaCluster, how: str, strategy: str
) -> None:
    orders, invoices = f"orders-{how}-{strategy}", f"invoices-{how}-{strategy}"
    node.create_topic(orders, 2)
    node.create_topic(invoices, 2)
    recorder, handled = Recorder(), list[bytes]()
    common = {"auto_offset_reset": "earliest", "partition.assignment.strategy": strategy, **CLIENT}
    tables = {
        "kafka": {"bootstrap_servers": node.bootstrap_servers},
        "http": {"enabled": False},
        "incoming": {
            "orders": {"topic": orders, "group_id": orders, **common},
            "missing": {
                "topics": [f"missing-{orders}", orders],
                "group_id": f"other-{orders}",
                **common,
            },
        },
        "outgoing": {
            "out": {"topic": orders, "send_timeout": "5s"},
            "invoices": {"topic": invoices, "transactional_id": invoices},
        },
    }
    app = App(tables, observer=recorder)
    emitter = app.emitter("out")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def pass_on(order: bytes) -> bytes:
        handled.append(order)
        return order

    @app.incoming("missing")
    async def look(order: bytes) -> None: ...

    with lines_of_the_client() as lines:
        async with app:
            await emitter.send(b"1")
            await until(lambda: handled, "it is handled", 30)
            leave, come = (
                (node.kill, node.start_node) if how == "killed" else (node.freeze, node.thaw)
            )
            leave(1)
            sending = emitter.send_nowait(b"2")
            await asyncio.sleep(AWAY_S)
            await asyncio.to_thread(come, 1)
            await sending
            await until(lambda: b"2" in handled, "it is handled after the outage", 30)
    assert lines == []
    assert {event.channel for event in recorder.of(BrokerUnavailable)} >= {"orders", "missing"}
    assert {event.channel for event in recorder.of(SendFailed)} >= {"out"}
    assert [event.topic for event in recorder.of(TopicMissing)] == [f"missing-{orders}"]
