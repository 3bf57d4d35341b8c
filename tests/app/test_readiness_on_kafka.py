"""``@app.readiness`` of an application on a real Kafka, as a load balancer sees it over HTTP."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaProducer

from reactive_kafka import App, TopicPartition

pytestmark = pytest.mark.kafka


async def produce(servers: str, topic: str, *values: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)


async def until_committed(app: App, topic: str, position: int) -> None:
    committed: int | None = None
    async with asyncio.timeout(20):
        while committed != position:
            await asyncio.sleep(0.05)
            positions = await app.channel(topic).committed()
            committed = positions.get(TopicPartition(topic, 0))


class Probe:
    """Asks for readiness over HTTP."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def checks(self, path: str = "/health/ready") -> tuple[int, dict[str, Any]]:
        answer = await self._client.get(path)
        return answer.status_code, {check["name"]: check for check in answer.json()["checks"]}

    async def until(self, code: int, name: str, status: str, reason: str | None) -> None:
        """Wait until readiness answers with *code*, and has this check in it."""
        seen: object = None
        try:
            async with asyncio.timeout(30):
                while seen != (code, status, reason):
                    await asyncio.sleep(0.05)
                    found, checks = await self.checks()
                    check = checks.get(name, {"status": None, "data": {"reason": None}})
                    seen = (found, check["status"], check["data"]["reason"])
        except TimeoutError:
            raise AssertionError(f"not {(code, status, reason)} but {seen}") from None


async def test_a_probe_shows_the_applications_reason_while_its_channel_works_and_commits(
    kafka: str,
) -> None:
    topic = f"prices-{uuid.uuid4().hex[:8]}"
    await produce(kafka, topic, b"1", b"2", b"3")
    app = App(
        {
            "kafka": {"bootstrap_servers": kafka, "auto_offset_reset": "earliest"},
            "http": {"port": 0},
            "incoming": {topic: {"group_id": topic, "commit_interval": "100ms"}},
        }
    )
    prices: list[bytes] = []

    @app.incoming(topic)
    async def keep(price: bytes) -> None:
        prices.append(price)

    @app.readiness("prices")
    def prices_are_there() -> str | None:
        return None if len(prices) >= 5 else f"{len(prices)} of 5 prices"

    async with app:
        assert app.http is not None
        url = f"http://127.0.0.1:{app.http.port}"
        async with httpx.AsyncClient(trust_env=False, base_url=url) as client:
            probe = Probe(client)
            await probe.until(503, "prices", "DOWN", "3 of 5 prices")
            # Only the application is not ready: its channel is, and it is alive and has started.
            await probe.until(503, topic, "UP", None)
            for path in ("/health/live", "/health/started"):
                code, checks = await probe.checks(path)
                assert (code, checks["prices"]["status"]) == (200, "UP")
            await until_committed(app, topic, 3)
            await produce(kafka, topic, b"4", b"5")
            await probe.until(200, "prices", "UP", None)
