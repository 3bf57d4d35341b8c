"""Each code that a broker may answer records with: written again, refused, or waiting for an
operator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from reactive_kafka import App, Message, Record, TopicPartition
from reactive_kafka.broker.aiokafka.error_classes import class_for
from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.broker.error_codes import KNOWN
from reactive_kafka.errors import BrokerError, RejectedRecordError, TransientBrokerError
from reactive_kafka.events import Event, RecordIgnored
from reactive_kafka.records import RecordBytes
from tests.broker.hazards.faults import Rig, until
from tests.broker.hazards.test_codes import produce
from tests.broker.members import Cluster, joined, producing, texts
from tests.broker.test_kafka import KafkaTestCluster

PRODUCE = 0
# What was sent is written already.
DUPLICATE = 46
UNKNOWN = 999
# Aiokafka raises an error of its own for it, without a code.
INVALID_PRODUCER_EPOCH = 47
CODES = [code for code in KNOWN if code not in (0, DUPLICATE)] + [UNKNOWN]
SENT_AGAIN_BY_THE_CLIENT = {code for code in CODES if class_for(code).retriable}
REFUSED = [43, 87, UNKNOWN]
NOT_ALLOWED = 29


async def test_what_a_write_raises_follows_from_the_code_and_the_next_one_is_written(
    rig: Rig,
) -> None:
    to = TopicPartition(await rig.create_topic(1), 0)
    wrong = {}
    async with producing(rig, {"retry_backoff_ms": 1}) as producer:
        for code in CODES:
            rig.broker.answer_with(PRODUCE, code, times=1)
            expected = (
                None
                if code in SENT_AGAIN_BY_THE_CLIENT
                else type(translate(class_for(code)(), is_write=True))
            )
            try:
                await producer.write(to, [RecordBytes(b"%d" % code)])
            except BrokerError as error:
                text = "ProducerFenced" if code == INVALID_PRODUCER_EPOCH else f"[Error {code}]"
                if type(error) is not expected or text not in str(error):
                    wrong[code] = repr(error)
            else:
                if expected is not None:
                    wrong[code] = "written"
            await producer.write(to, [RecordBytes(b"next")])
    assert wrong == {}


@pytest.mark.parametrize(
    "code", [code for code in SENT_AGAIN_BY_THE_CLIENT if code in (5, 6, 7, 19, 20, 56)]
)
async def test_a_write_that_the_client_sends_again_until_its_deadline_says_what_the_broker_answers(
    rig: Rig, code: int
) -> None:
    to = TopicPartition(await rig.create_topic(1), 0)
    async with producing(rig, {"retry_backoff_ms": 50, "send_timeout_s": 1.0}) as producer:
        await producer.write(to, [RecordBytes(b"before")])
        rig.broker.answer_with(PRODUCE, code, times=1_000)
        said = rf"not confirmed within 1 s; the last answer was .*\[Error {code}\]"
        with pytest.raises(TransientBrokerError, match=said):
            await producer.write(to, [RecordBytes(b"late")])


class Service:
    """An application that writes what it reads, and sends what it is asked to."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.nacks: list[str] = []

    def on(self, event: Event) -> None:
        """Keep why records were nacked."""
        if isinstance(event, RecordIgnored):
            self.nacks.append(event.text())

    def committed(self) -> list[int | None]:
        """The position of each partition that is read."""
        return [one.committed for one in self.app.facts().channels[0].partitions]

    def ready(self) -> str:
        """What readiness says."""
        return str(self.app.health().ready.to_json())


@asynccontextmanager
async def serving(
    cluster: Rig | KafkaTestCluster,
    incoming: str,
    outgoing: str,
    group: str,
    given: Mapping[str, Any],
) -> AsyncIterator[Service]:
    """The service runs; its outgoing channel has the settings *given*."""
    channel = {
        "topic": incoming,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "value_deserializer": "bytes",
        "failure_strategy": "ignore",
        "commit_interval": "0.1s",
        **cluster.properties,
    }
    app = App(
        {
            "kafka": {"bootstrap_servers": cluster.bootstrap_servers},
            "incoming": {"orders": channel},
            "outgoing": {"invoices": {"topic": outgoing, **given}},
            "http": {"enabled": False},
        }
    )
    service = Service(app)
    app.observe(service)

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def pass_on(message: Message[bytes]) -> Record[bytes]:
        return Record(message.payload, key=message.key)

    async with app:
        yield service


async def written_to(cluster: Cluster, topic: str, count: int) -> list[str]:
    """The values of the one partition of a topic."""
    partition = TopicPartition(topic, 0)
    async with joined(cluster, None, None, partitions=[partition]) as reader:
        await reader.until_assigned(1)
        return texts((await reader.take(count))[partition])


@pytest.mark.parametrize("waits", [True, False], ids=["waits", "goes on"])
@pytest.mark.parametrize("code", REFUSED)
async def test_a_refused_output_is_a_nack_and_what_is_behind_it_is_written(
    rig: Rig, group: str, code: int, waits: bool
) -> None:
    incoming = await rig.create_topic(1)
    outgoing = await rig.create_topic(1)
    await produce(rig, incoming, b"1", b"2", b"3")
    # A batch that was refused is sent again record by record, and the first of them is refused.
    rig.broker.answer_with(PRODUCE, code, times=2)
    async with serving(rig, incoming, outgoing, group, {"wait_for_write": waits}) as service:
        await until(lambda: service.committed() == [3], "all are settled, and committed")
        assert 1 <= len(service.nacks) <= 2
        assert f"[Error {code}]" in service.nacks[0]
        assert service.app.health().live.status == "UP"
    left = ["1", "2", "3"][len(service.nacks) :]
    assert await written_to(rig, outgoing, len(left)) == left


@pytest.mark.parametrize("code", REFUSED)
async def test_a_refused_send_raises_and_the_next_one_is_written(
    rig: Rig, group: str, code: int
) -> None:
    topic = await rig.create_topic(1)
    async with serving(rig, await rig.create_topic(1), topic, group, {}) as service:
        emitter = service.app.emitter("invoices")
        rig.broker.answer_with(PRODUCE, code, times=1)
        with pytest.raises(RejectedRecordError, match=rf"\[Error {code}\]"):
            await emitter.send(Record(b"1"))
        await emitter.send(Record(b"2"))
    assert await written_to(rig, topic, 1) == ["2"]


@pytest.mark.parametrize("waits", [True, False], ids=["waits", "goes on"])
async def test_without_the_right_to_write_records_wait_readiness_names_it_and_nothing_is_lost(
    rig: Rig, group: str, waits: bool
) -> None:
    incoming = await rig.create_topic(1)
    outgoing = await rig.create_topic(1)
    await produce(rig, incoming, b"1", b"2", b"3")
    rig.broker.answer_with(PRODUCE, NOT_ALLOWED, times=10_000)
    async with serving(rig, incoming, outgoing, group, {"wait_for_write": waits}) as service:
        await until(
            lambda: "WRITE for what is written" in service.ready(), "readiness names the right"
        )
        assert outgoing in service.ready()
        assert service.nacks == []
        assert not any(service.committed())
        rig.broker.heal(PRODUCE)
        await until(lambda: service.committed() == [3], "it goes on by itself")
    assert await written_to(rig, outgoing, 3) == ["1", "2", "3"]


@pytest.mark.kafka
@pytest.mark.parametrize(
    "given",
    [{"wait_for_write": True}, {"wait_for_write": False}, {"transactional_id": "own"}],
    ids=["waits", "goes on", "transactional"],
)
async def test_a_record_without_a_key_for_a_compacted_topic_is_a_nack_and_keeps_nothing_else_back(
    cluster: KafkaTestCluster, group: str, given: Mapping[str, Any]
) -> None:
    incoming = await cluster.create_topic(1)
    outgoing = await cluster.create_topic(1)
    await cluster.alter(outgoing, {"cleanup.policy": "compact"})
    async with producing(cluster) as producer:
        for value, key in ((b"1", b"k"), (b"2", None), (b"3", b"k")):
            await producer.write(TopicPartition(incoming, 0), [RecordBytes(value, key)])
    if "transactional_id" in given:
        given = {"transactional_id": f"own-{group}"}
    async with serving(cluster, incoming, outgoing, group, given) as service:
        await until(lambda: service.committed() == [3], "all are settled, and committed")
        assert len(service.nacks) == 1
        assert (
            "INVALID_RECORD: the topic is compacted and the record has no key" in service.nacks[0]
        )
    assert await written_to(cluster, outgoing, 2) == ["1", "3"]
