"""Each use case of examples/offset_metadata: what one owner stores is what the next one, another
process, goes by.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.broker.kafka_connector import KafkaConnector
from reactive_kafka.records import Committed
from reactive_kafka.testing import MemoryBroker, TestApp
from reactive_kafka.tracking.metadata.codec import decode
from tests.app.helpers import in_virtual_time, make_broker, running, until
from tests.cli.process import running as cli_running
from tests.faults.driver import create_topic

FOLDER = Path(__file__).parents[2] / "examples" / "offset_metadata"


def process(name: str, **attributes: Any) -> ModuleType:
    """The example as a new process has it: nothing in its memory. *attributes* are set over its
    own.
    """
    spec = spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    for attribute, value in attributes.items():
        assert hasattr(module, attribute)
        setattr(module, attribute, value)
    return module


def first(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


def produce(broker: MemoryBroker, topic: str, values: Iterable[str], **named: Any) -> None:
    for value in values:
        broker.produce(topic, value.encode(), partition=0, **named)


def stored(broker: MemoryBroker, group: str, topic: str) -> tuple[int, str]:
    found = broker.committed(group)[first(topic)]
    return found.offset, found.metadata


class Crash(Exception):
    """The process ends here, as far as the example can tell."""


# -- state, stages, counts


@in_virtual_time
async def test_the_next_owner_goes_on_with_the_sum_so_far() -> None:
    broker = make_broker()
    produce(broker, "payments", ['{"amount": 5}', '{"amount": 7}'])
    async with running(process("running_sums").app, broker=broker) as test:
        await test.settled()
    assert stored(broker, "sums", "payments") == (2, '{"sum": 12.0}')
    later = process("running_sums")
    produce(broker, "payments", ['{"amount": 30}'])
    async with running(later.app, broker=broker) as test:
        await test.settled()
        assert later.sums == {first("payments"): 42.0}
    assert stored(broker, "sums", "payments") == (3, '{"sum": 42.0}')


@in_virtual_time
async def test_whoever_gets_a_long_job_next_begins_with_the_stage_that_is_missing() -> None:
    broker, done = make_broker(), list[str]()
    produce(broker, "imports", ["may.csv", "june.csv"])

    async def crashes(stage: str, file: str) -> None:
        if stage == "load":
            raise Crash
        done.append(f"{stage} {file}")

    async def works(stage: str, file: str) -> None:
        done.append(f"{stage} {file}")

    one = process("stages", work=crashes)
    async with running(one.app, broker=broker) as test:
        await until(lambda: test.app.channel("imports").facts().state == "failed")
    assert stored(broker, "importer", "imports") == (0, "0:convert")
    async with running(process("stages", work=works).app, broker=broker) as test:
        await test.settled()
    assert done == [
        f"{stage} {file}"
        for file in ("may.csv", "june.csv")
        for stage in ("download", "convert", "load")
    ]
    assert stored(broker, "importer", "imports")[0] == 2


@in_virtual_time
async def test_a_record_that_kills_every_process_is_given_up_after_three() -> None:
    broker, tried = make_broker(), list[str]()
    produce(broker, "images", ["cat", "bomb", "dog"])

    async def kills(image: str) -> None:
        tried.append(image)
        if image == "bomb":
            raise Crash

    for _ in range(3):
        async with running(
            process("retry_counts", make_thumbnail=kills).app, broker=broker
        ) as test:
            await until(lambda: test.app.channel("images").facts().state == "failed")
    assert stored(broker, "thumbnails", "images") == (1, "1:3")
    async with running(process("retry_counts", make_thumbnail=kills).app, broker=broker) as test:
        await test.settled()
    assert tried == ["cat", "bomb", "bomb", "bomb", "dog"]


# -- who, and what for


@in_virtual_time
async def test_the_trace_of_the_last_record_that_was_done_stands_in_the_group_also_of_a_dead_letter() -> (
    None
):
    broker = make_broker()
    async with running(process("trace_ids").app, broker=broker) as test:
        produce(broker, "orders", ["book"], headers=(("traceparent", b"00-aaaa-01"),))
        await test.settled()
        assert stored(broker, "shipping", "orders") == (1, "00-aaaa-01")
        produce(broker, "orders", [""], headers=(("traceparent", b"00-bbbb-01"),))
        await test.settled()
        assert stored(broker, "shipping", "orders") == (2, "00-bbbb-01")
        assert len(test.records("dead-letter-topic-orders")) == 1


@in_virtual_time
async def test_the_next_owner_sees_which_version_was_there_before() -> None:
    broker = make_broker()
    one, two = process("versions", ME="1.0 on left"), process("versions", ME="1.1 on right")
    produce(broker, "orders", ["a"])
    for each in (one, two):
        async with running(each.app, broker=broker) as test:
            await test.settled()
    assert one.taken_over[first("orders")] == "nobody"
    assert two.taken_over[first("orders")] == "1.0 on left"


@in_virtual_time
async def test_what_a_version_with_a_mistake_has_handled_is_handled_again_and_nothing_else() -> (
    None
):
    broker, used = make_broker(), list[str]()

    async def runs(version: int, readings: str) -> None:
        used.clear()
        produce(broker, "readings", readings)
        app = process(
            "replay", VERSION=version, MISTAKEN={1} if version > 1 else set(), use=used.append
        ).app
        async with running(app, broker=broker) as test:
            await test.settled()

    await runs(0, "ab")
    await runs(1, "cde")
    assert used == ["c", "d", "e"]
    assert stored(broker, "averages", "readings") == (5, json.dumps({"version": 1, "since": 2}))
    await runs(2, "f")
    assert used == ["c", "d", "e", "f"]
    assert stored(broker, "averages", "readings") == (6, json.dumps({"version": 2, "since": 2}))
    await runs(2, "g")
    assert used == ["g"]
    assert stored(broker, "averages", "readings") == (7, json.dumps({"version": 2, "since": 2}))


@in_virtual_time
async def test_what_one_owner_has_seen_decides_what_the_next_one_does() -> None:
    broker = make_broker()
    produce(broker, "rows", ["begin", "1", "?"])
    async with running(process("conditional_flow").app, broker=broker) as test:
        await test.settled()
    assert stored(broker, "loader", "rows") == (3, "broken")
    later = process("conditional_flow")
    produce(broker, "rows", ["3", "4", "end", "begin", "5"])
    async with running(later.app, broker=broker) as test:
        await test.settled()
    assert later.loaded == ["5"]


# -- work inside of a partition


@pytest.mark.parametrize(("strategy", "expected"), [("exact", "ada at 1"), ("current", "eve at 3")])
@in_virtual_time
async def test_the_string_is_that_of_the_record_before_the_position_or_the_newest(
    strategy: str, expected: str
) -> None:
    broker, visits = make_broker(), process("virtual_partitions")
    visits.slow[b"bob"] = asyncio.Event()
    for key, value in (("ada", "1"), ("bob", "2"), ("eve", "3")):
        broker.produce("visits", value.encode(), key=key.encode(), partition=0)
    overrides = {
        "incoming": {"visits": {"offset_metadata_strategy": strategy, "drain_timeout": "100ms"}}
    }
    async with TestApp(visits.app, broker=broker, overrides=overrides):
        await until(lambda: first("visits") in broker.committed("visitors"), 20)
        assert stored(broker, "visitors", "visits") == (1, expected)
        visits.slow[b"bob"].set()
    assert broker.committed("visitors")[first("visits")].offset == 3
    await broker.close()


@in_virtual_time
async def test_another_program_reads_what_stands_in_the_group(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker, look = make_broker(), process("look")
    produce(broker, "rows", ["begin", "1", "?"])
    async with running(process("conditional_flow").app, broker=broker) as test:
        await test.settled()
    assert capsys.readouterr().out == "loaded 1\n"
    look.app._connector = broker.connector()
    await look.look("loader")
    await look.look("nobody")
    assert capsys.readouterr().out == "rows-0 3 broken\n"


@in_virtual_time
async def test_what_was_sent_behind_a_slow_mail_is_not_sent_again() -> None:
    broker, sent = make_broker(), list[str]()
    gate = asyncio.Event()

    async def send_mail(text: str) -> None:
        if text.startswith("slow"):
            await gate.wait()
        sent.append(text)

    produce(broker, "mails", ["a", "slow b", "c", "d"])
    overrides = {"incoming": {"mails": {"drain_timeout": "100ms"}}}
    async with TestApp(
        process("kept_acks", send_mail=send_mail).app, broker=broker, overrides=overrides
    ):
        await until(
            lambda: (
                stored(broker, "mailer", "mails") != (1, "")
                if broker.committed("mailer")
                else False
            )
        )
        assert stored(broker, "mailer", "mails")[0] == 1
    gate.set()
    async with TestApp(
        process("kept_acks", send_mail=send_mail).app, broker=broker, overrides=overrides
    ) as test:
        await test.settled()
    assert sorted(sent) == ["a", "c", "d", "slow b"]
    await broker.close()


@pytest.mark.kafka
async def test_a_killed_process_leaves_what_it_has_done_to_the_next_one(kafka: str) -> None:
    topic = f"mails-{uuid4().hex}"
    (partition,) = await create_topic(kafka, topic, 1)
    env = {
        "REACTIVE_KAFKA__KAFKA__BOOTSTRAP_SERVERS": kafka,
        "REACTIVE_KAFKA__HTTP__PORT": "0",
        "REACTIVE_KAFKA__INCOMING__MAILS__TOPIC": topic,
        "REACTIVE_KAFKA__INCOMING__MAILS__GROUP_ID": topic,
        # Whoever comes next waits for no session's end.
        "REACTIVE_KAFKA__INCOMING__MAILS__GROUP_INSTANCE_ID": "one",
    }
    mails = ["a", "slow b", *(f"mail {number}" for number in range(50))]
    connector = KafkaConnector(kafka)
    producer = connector.producer(name="test", properties={})
    await producer.start()
    for mail in mails:
        await (await producer.send(topic, mail.encode()))
    await producer.stop()
    inspector = connector.inspector(properties={})
    await inspector.start()
    command = (sys.executable, "kept_acks.py")
    with cli_running(*command, cwd=FOLDER, env=env | {"SLOW_S": "600"}) as victim:
        found = Committed(-1)
        async with asyncio.timeout(30):
            while (acks := decode(found.metadata, found.offset).acks) is None or acks.until != len(
                mails
            ):
                await asyncio.sleep(0.05)
                found = (await inspector.committed(topic)).get(TopicPartition(*partition), found)
        victim.process.kill()
        first_run = victim.end()
    assert (found.offset, first_run.code) == (1, -signal.SIGKILL)
    assert "sent mail 49" in first_run.out
    with cli_running(*command, cwd=FOLDER, env=env | {"SLOW_S": "0"}) as heir:
        heir.wait_for(lambda: "sent slow b" in heir.out, "the mail that was slow")
        heir.process.send_signal(signal.SIGTERM)
        second_run = heir.end()
    (found,) = (await inspector.committed(topic)).values()
    await inspector.stop()
    assert found.offset == len(mails)
    assert second_run.out.splitlines() == ["sent slow b"]
