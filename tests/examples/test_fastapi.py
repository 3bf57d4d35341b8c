"""The FastAPI example: its requests send, its handlers run, and its probes are served."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from reactive_kafka.testing import MemoryBroker
from tests.app.helpers import make_broker, until

FOLDER = Path(__file__).parents[2] / "examples" / "fastapi"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example's module, imported anew: it makes its application while it is imported."""
    monkeypatch.syspath_prepend(str(FOLDER))
    sys.modules.pop("shop", None)
    yield import_module("shop")
    sys.modules.pop("shop", None)


@asynccontextmanager
async def served(shop: Any, broker: MemoryBroker) -> AsyncIterator[httpx.AsyncClient]:
    """The web application as a server runs it: its lifespan around its requests."""
    shop.app._connector = broker.connector()
    async with (
        shop.web.router.lifespan_context(shop.web),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(shop.web), base_url="http://shop"
        ) as client,
    ):
        yield client
    await broker.close()


async def test_an_order_is_answered_when_the_broker_has_it_and_shipped(shop: Any) -> None:
    broker = make_broker(1)
    async with served(shop, broker) as client:
        answers = [
            await client.post("/orders", json={"id": number, "customer": "Ada"})
            for number in (1, 2)
        ]
        assert [(one.status_code, one.json()["offset"]) for one in answers] == [(201, 0), (201, 1)]
        await until(lambda: shop.shipped == [1, 2])
        ready = await client.get("/kafka/health/ready")
        assert (ready.status_code, ready.json()["status"]) == (200, "UP")
        assert (
            'reactive_kafka_records_sent_total{channel="orders",outcome="ok"} 2.0'
            in (await client.get("/kafka/metrics")).text
        )
    assert [record.key for record in broker.log(("orders", 0))] == [b"Ada", b"Ada"]


async def test_a_broker_that_is_away_is_a_503_that_says_so(shop: Any) -> None:
    broker = make_broker(1)
    shop.app.configure(
        overrides={
            "outgoing": {"orders": {"send_timeout": "200ms"}, "clicks": {"max_in_flight": 1}}
        }
    )
    async with served(shop, broker) as client:
        broker.topic_away("orders")
        broker.topic_away("clicks")
        answer = await client.post("/orders", json={"id": 1, "customer": "Ada"})
        assert answer.status_code == 503
        assert answer.json()["detail"] == "the order is not confirmed; try again later", (
            "no host or topic of ours"
        )
        assert [(await client.post("/clicks/home")).status_code for _ in range(2)] == [202, 503]
        broker.topic_back("clicks")
    assert [record.value for record in broker.log(("clicks", 0))] == [b'{"page":"home"}']
