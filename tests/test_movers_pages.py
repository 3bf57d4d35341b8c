"""The services of the page for those who come from aiokafka, on a real Kafka: one takes over from
the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests import pages
from tests.faults.driver import free_port
from tests.test_docs import laid_out, until_ready

PAGE = pages.page("docs/from-aiokafka.md")
COMMAND = (sys.executable, "-m", "reactive_kafka.cli", "run", "billing:app")


@asynccontextmanager
async def running(*command: str, **env: str) -> AsyncIterator[None]:
    """A service, which is asked to end at the end, and does."""
    service = await asyncio.create_subprocess_exec(*command, env={**os.environ, **env})
    try:
        yield
        service.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(service.wait(), 20) == 0
    finally:
        if service.returncode is None:
            service.kill()
            await service.wait()


def rewrite(file: Path, names: dict[str, str]) -> None:
    """Put other names in the place of those that the page has."""
    text = file.read_text()
    for ours, theirs in names.items():
        assert ours in text
        text = text.replace(ours, f'"{theirs}"')
    file.write_text(text)


@pytest.mark.kafka
async def test_the_new_service_goes_on_where_the_old_one_has_committed(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, port = uuid4().hex[:8], free_port()
    orders, failed, invoices = f"orders-{run}", f"orders-failed-{run}", f"invoices-{run}"
    with laid_out(PAGE, tmp_path, monkeypatch):
        # Topics and a group of this test.
        own = {'"orders-failed"': failed, '"billing"': f"billing-{run}"}
        rewrite(tmp_path / "reactive-kafka.toml", own)
        rewrite(tmp_path / "before.py", own | {'"orders"': orders, '"invoices"': invoices})
        env = {
            "KAFKA": kafka,
            "REACTIVE_KAFKA__KAFKA__BOOTSTRAP_SERVERS": kafka,
            "REACTIVE_KAFKA__INCOMING__ORDERS__TOPIC": orders,
            "REACTIVE_KAFKA__OUTGOING__INVOICES__TOPIC": invoices,
            "REACTIVE_KAFKA_PORT": str(port),
        }
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        await admin.create_topics([NewTopic(topic, 4, 1) for topic in (orders, failed, invoices)])
        await admin.close()
        reader = aiokafka.AIOKafkaConsumer(
            invoices, failed, bootstrap_servers=kafka, auto_offset_reset="earliest"
        )
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka) as producer, reader:
            seen: dict[str, set[int]] = {invoices: set(), failed: set()}

            async def send(*numbers: int) -> None:
                for number in numbers:
                    value = (
                        b"?" if number < 0 else json.dumps({"id": number, "total": 2.5}).encode()
                    )
                    await producer.send_and_wait(orders, value, key=str(number).encode())

            async def all_done(numbers: range) -> None:
                while seen != {invoices: set(numbers), failed: {-1}}:
                    record = await asyncio.wait_for(reader.getone(), 60)
                    seen[record.topic].add(int(record.key))

            await send(-1, *range(10))
            async with running(*COMMAND, **env):
                async with running(sys.executable, "before.py", **env):
                    await until_ready(port)
                    await all_done(range(10))
                    await send(*range(10, 30))
                    await all_done(range(30))
                await send(*range(30, 40))
                await all_done(range(40))
            partitions = [aiokafka.TopicPartition(orders, number) for number in range(4)]
            group = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=kafka, group_id=f"billing-{run}", enable_auto_commit=False
            )
            async with group:
                assert sum([await group.committed(one) or 0 for one in partitions]) == 41
