"""``docs/quarkus.md`` says what is so: its file runs and prints its TOML, and each line of its
tables is true.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tomllib
from pathlib import Path
from typing import Any

import aiokafka
import pytest

from reactive_kafka.config.load import toml_of_quarkus
from reactive_kafka.config.reference import quarkus_blocks, with_tables
from reactive_kafka.errors import ConfigError
from reactive_kafka.testing import TestApp
from tests import pages
from tests.config.microprofile.reading import written
from tests.faults.driver import free_port
from tests.test_docs import laid_out, run_code, until_ready

PAGE = pages.page("docs/quarkus.md")
ANOTHER = "mp.messaging.incoming.orders.value.deserializer=org.acme.OrderDeserializer"


def block(language: str) -> str:
    (found,) = pages.blocks(PAGE, language)
    return found.text


def test_another_line_has_the_problem_that_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"`{ANOTHER}`" in PAGE.read_text()
    (tmp_path / "application.properties").write_text(block("properties") + ANOTHER)
    (shown,) = (found.text for found in pages.blocks(PAGE, "") if found.text.startswith("Error: "))
    with pytest.raises(ConfigError) as caught:
        toml_of_quarkus(Path("application.properties"), {})
    assert f"Error: {caught.value}".split() == shown.split()


def test_the_file_means_the_toml_that_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "application.properties").write_text(block("properties"))
    assert toml_of_quarkus(Path("application.properties"), {}) == (block("toml"), ())


@pytest.mark.parametrize("config", ["application.properties", "reactive-kafka.toml"])
async def test_the_service_of_the_page_runs_on_both(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with laid_out(PAGE, tmp_path, monkeypatch):
        app = run_code(PAGE).app
        app.configure(config)
        async with TestApp(app) as test:
            await test.send("orders", {"id": 1, "total": 2.5}, key=b"ada")
            await test.settled()
            (invoice,) = test.records("invoices")
            assert (json.loads(invoice.value or b""), invoice.key) == (
                {"order": 1, "total": 2.5},
                b"ada",
            )
            assert [topic for topic, _ in test.committed("orders")] == ["shop-orders"]


@pytest.mark.kafka
async def test_the_service_of_the_page_runs_on_kafka_as_it_stands(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    with laid_out(PAGE, tmp_path, monkeypatch):
        (tmp_path / "billing.py").write_text(block("python"))
        environ = {**os.environ, "KAFKA_BROKERS": kafka, "REACTIVE_KAFKA_PORT": str(port)}
        command = (sys.executable, "-m", "reactive_kafka.cli", "run", "billing:app")
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka) as producer:
            await producer.send_and_wait(
                "shop-orders", b'{"id": 7, "total": 1.5}', key="größe".encode()
            )
        service = await asyncio.create_subprocess_exec(*command, env=environ)
        try:
            await until_ready(port)
            consumer = aiokafka.AIOKafkaConsumer(
                "invoices", bootstrap_servers=kafka, auto_offset_reset="earliest"
            )
            async with consumer:
                invoice = await asyncio.wait_for(consumer.getone(), 20)
            service.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(service.wait(), 15) == 0
        finally:
            if service.returncode is None:
                service.kill()
                await service.wait()
        committed = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=kafka, group_id="billing", enable_auto_commit=False
        )
        async with committed:
            assert await committed.committed(aiokafka.TopicPartition("shop-orders", 0)) == 1
    assert (json.loads(invoice.value), invoice.key) == (
        {"order": 7, "total": 1.5},
        "größe".encode(),
    )


def rows(heading: str) -> list[tuple[str, str]]:
    text = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (`.+) \| (`.+) \|$", text, re.MULTILINE)
    return [(left, right) for left, right in found if "application.properties" not in left]


def said(text: str) -> list[str]:
    return [one for one in re.findall(r"`([^`]+)`", text) if "=" in one]


def is_within(part: dict[str, Any], whole: dict[str, Any]) -> bool:
    return all(
        is_within(value, whole.get(key, {})) if isinstance(value, dict) else whole.get(key) == value
        for key, value in part.items()
    )


LINES = rows("Lines that change their meaning")
INCOMING_LINES = [
    ("`topic=orders`", '`topic = "orders"`'),
    ("`topics=a,b`", '`topics = ["a", "b"]`'),
    ("`group.id=billing`", '`group_id = "billing"`'),
    ("`auto.offset.reset=earliest`", '`auto_offset_reset = "earliest"`'),
    (
        "`key.deserializer=org.apache.kafka.common.serialization.ByteArrayDeserializer`",
        '`key_deserializer = "bytes"`',
    ),
    ("`commit-strategy=throttled`", '`commit_strategy = "throttled"`'),
    ("`auto.commit.interval.ms=2000`", '`commit_interval = "2s"`'),
    ("`enable.auto.commit=true`", "`enable_auto_commit = true`"),
    ("`failure-strategy=ignore`", '`failure_strategy = "ignore"`'),
    ("`dead-letter-queue.topic=dead`", '`dead_letter_queue.topic = "dead"`'),
    (
        "`delayed-retry-topic.topics=o_1000,o_5000`",
        '`delayed_retry.topics = ["o_1000", "o_5000"]`',
    ),
    ("`delayed-retry-topic.max-retries=5`", "`delayed_retry.max_retries = 5`"),
    ("`delayed-retry-topic.timeout=60000`", '`delayed_retry.timeout = "1m"`'),
    ("`health-enabled=false`", "`health_enabled = false`"),
    ("`tracing-enabled=false`", "`tracing_enabled = false`"),
]
OUTGOING_LINES = [
    ("`acks=all`", '`acks = "all"`'),
    ("`max-inflight-messages=100`", "`max_in_flight = 100`"),
    ("`delivery.timeout.ms=30000`", '`send_timeout = "30s"`'),
    ("`propagate-record-key=true`", "`propagate_key = true`"),
    ("`propagate-headers=trace,tenant`", '`propagate_headers = ["trace", "tenant"]`'),
    ("`transactional.id=billing` and `acks=all`", '`transactional_id = "billing"`'),
    (
        "`key.serializer=org.apache.kafka.common.serialization.IntegerSerializer`",
        '`key_serializer = "int32"`',
    ),
]


@pytest.mark.parametrize(
    ("side", "name", "properties", "toml"),
    [
        *(("incoming", "orders", *line) for line in [*LINES, *INCOMING_LINES]),
        *(("outgoing", "invoices", *line) for line in OUTGOING_LINES),
    ],
)
def test_a_line_means_what_the_table_says(side: str, name: str, properties: str, toml: str) -> None:
    attributes = said(properties)
    needed = (
        ["group.id=g"]
        if side == "incoming" and not any("group.id" in one for one in attributes)
        else []
    )
    text = "".join(f"mp.messaging.{side}.{name}.{one}\n" for one in (*attributes, *needed))
    printed = tomllib.loads(toml_of_quarkus(written(text), {})[0])
    assert is_within(tomllib.loads("\n".join(said(toml))), printed[side][name])


def test_every_line_of_the_table_is_looked_at() -> None:
    assert len(LINES) == 11


def test_the_page_holds_the_tables_of_attributes_as_they_are_now() -> None:
    page = PAGE.read_text()
    assert with_tables(page) == page, (
        "run python -m reactive_kafka.config.reference docs/quarkus.md"
    )
    assert set(re.findall(r"<!-- generated: (\S+) -->", page)) == quarkus_blocks().keys()
