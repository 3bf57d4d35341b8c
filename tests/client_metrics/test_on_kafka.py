"""Metrics of clients on a real Kafka, read by its own parser of OTLP. See ReceivedMetrics.java."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from uuid import uuid4

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from reactive_kafka import App, Message
from tests.broker.hazards.faults import until
from tests.harness.receiving_kafka import Received, ReceivingKafka, receiving_kafka

pytestmark = pytest.mark.kafka

EVERYTHING = "everything"
RECORDS = 12
FAILING = b"7"
PATIENCE_S = 30.0
COUNTERS = "sum"
"""Kafka's brokers ask for sums by their differences."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReceivingKafka]:
    """A Kafka that wants everything every second."""
    with receiving_kafka(tmp_path_factory.mktemp("kafka")) as kafka:
        kafka.subscribe(EVERYTHING, "*")
        yield kafka


class Service:
    """A running application that fails for one record, and its metrics."""

    def __init__(self, kafka: ReceivingKafka, **incoming: object) -> None:
        self.group = f"billing-{uuid4().hex[:8]}"
        # Names the client, too.
        self.channel = f"orders-{uuid4().hex[:8]}"
        self._kafka = kafka
        self.app = App(
            {
                "kafka": {"bootstrap_servers": kafka.servers},
                "http": {"enabled": False},
                "incoming": {
                    self.channel: {
                        "topic": self.channel,
                        "group_id": self.group,
                        "auto_offset_reset": "earliest",
                        "commit_interval": "100ms",
                        "failure_strategy": "dead-letter-queue",
                        "retry": {"max_attempts": 2, "backoff": "10ms"},
                        **incoming,
                    }
                },
                "outgoing": {"out": {"topic": self.channel}},
            }
        )
        self.app.incoming(self.channel)(self._handle)

    async def _handle(self, message: Message[bytes]) -> None:
        if message.payload == FAILING:
            raise ValueError("asked to fail")

    async def send(self) -> None:
        """Send records, and wait until all are committed."""
        for number in range(RECORDS):
            await self.app.emitter("out").send(str(number).encode())
        channel = self.app.channel(self.channel)

        async def has_committed() -> bool:
            lags = await channel.lag()
            return len(lags) == 4 and not any(lags.values())

        async with asyncio.timeout(PATIENCE_S):
            while not (channel.assignment and await has_committed()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def pushes(self) -> list[Received]:
        """What the client has pushed, the oldest first."""
        client = f"reactive-kafka-{self.channel}"
        return [push for push in self._kafka.pushes() if push.client_id == client]

    async def pushes_again(self, more: int = 1) -> None:
        """Wait until the client has pushed again."""
        expected = len(self.pushes()) + more
        await until(lambda: len(self.pushes()) >= expected, "a push", PATIENCE_S)

    async def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Name and labels -> value, as Prometheus gets them."""
        transport = httpx.ASGITransport(app=self.app.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            page = (await client.get("/metrics")).text
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[Service]:
    async with service.app:
        yield service


async def test_a_broker_gets_within_an_interval_what_prometheus_shows(
    kafka: ReceivingKafka,
) -> None:
    async with running(Service(kafka)) as service:
        await service.send()
        await service.pushes_again(2)
        shown = await service.metrics()
        pushes = service.pushes()
    told = {
        name: value
        for (name, labels), value in shown.items()
        if ("channel", service.channel) in labels
    }
    assert told["reactive_kafka_retries_total"] == 1

    newest = pushes[-1]
    assert newest.labels["group_id"] == service.group
    assert newest.labels["group_member_id"]
    assert {push.instance_id for push in pushes} == {newest.instance_id}
    ours = {series for series in newest.points if series[0].startswith("reactive_kafka.")}
    assert len(ours) > 50
    for name, labels in ours:
        shown_as = (name.replace(".", "_"), labels)
        assert shown_as in shown, name
        if newest.points[name, labels].kind == COUNTERS:
            value = sum(
                push.points[name, labels].value for push in pushes if (name, labels) in push.points
            )
        else:
            value = newest.points[name, labels].value
        assert value == shown[shown_as], (name, labels)
    letters = [push for push in pushes if "reactive_kafka.dead_letters_total" in push.names]
    assert letters


async def test_names_of_kafkas_own_metrics_are_those_of_javas_consumer(
    kafka: ReceivingKafka,
) -> None:
    async with running(Service(kafka)) as service:
        await service.send()
        await service.pushes_again(2)
        ours = set.union(*(push.names for push in service.pushes()))
        kinds = {
            name: point.kind
            for push in service.pushes()
            for (name, _), point in push.points.items()
        }
        javas = await asyncio.to_thread(javas_kinds, kafka, service.channel)
    kafkas = {name for name in ours if name.startswith("org.apache.kafka.consumer.")}
    assert len(kafkas) >= 12
    assert {name: kinds[name] for name in kafkas} == {name: javas.get(name) for name in kafkas}


def javas_kinds(kafka: ReceivingKafka, topic: str) -> dict[str, str]:
    """Name -> kind of what a consumer of Kafka's own client pushes."""
    group = f"java-{uuid4().hex[:8]}"
    with kafka.java_consumer(topic, group):
        pushes: list[Received] = []
        while len(pushes) < 3:
            pushes = [push for push in kafka.pushes() if push.labels.get("group_id") == group]
    return {name: point.kind for push in pushes for (name, _), point in push.points.items()}


async def test_the_last_push_of_a_client_is_at_its_end(kafka: ReceivingKafka) -> None:
    async with running(Service(kafka)) as service:
        await service.pushes_again()
    assert [push.is_terminating for push in service.pushes()[-2:]] == [False, True]


async def test_a_channel_that_does_not_want_to_push_does_not(kafka: ReceivingKafka) -> None:
    quiet = Service(kafka, **{"enable.metrics.push": False})
    async with running(quiet), running(Service(kafka)) as other:
        await quiet.send()
        await other.pushes_again(2)
    assert quiet.pushes() == []


async def test_a_client_pushes_what_the_operator_wants_by_now(kafka: ReceivingKafka) -> None:
    wanted = "reactive_kafka.lag_records"
    async with running(Service(kafka)) as service:
        await service.pushes_again()
        # While some subscription is left, brokers keep its interval.
        await asyncio.to_thread(kafka.subscribe, "lag", wanted)
        await asyncio.to_thread(kafka.unsubscribe, EVERYTHING)
        try:
            await until(
                lambda: service.pushes()[-1].names == {wanted}, "pushes of the lag only", PATIENCE_S
            )
        finally:
            await asyncio.to_thread(kafka.subscribe, EVERYTHING, "*")
            await asyncio.to_thread(kafka.unsubscribe, "lag")


async def test_metrics_are_pushed_again_after_an_outage_of_the_broker(
    kafka: ReceivingKafka,
) -> None:
    async with running(Service(kafka)) as service:
        await service.pushes_again()
        await asyncio.to_thread(kafka.cluster.kill)
        await asyncio.to_thread(kafka.cluster.start_node, 1)
        await service.pushes_again(2)
        await service.send()
        instances = {push.instance_id for push in service.pushes()}
    assert len(instances) == 1
