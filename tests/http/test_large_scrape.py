"""Scrapes of 10,000 partitions: what they cost, and what slow scrapers of them hold."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
from collections.abc import Iterable

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.registry import Collector

from reactive_kafka.http.asgi import make_asgi
from reactive_kafka.http.scrapes import MOST_ANSWERS, RenderedScrape, Scrapes
from reactive_kafka.http.server import serve
from tests.http.applike import FactsApp
from tests.http.test_attack import ASKS, all_probes, crowd
from tests.http.test_server import HOST
from tests.observe.samples import app, with_partitions


def changing_app(partitions: int) -> FactsApp:
    """Its retries say how often somebody has asked for its facts."""
    return FactsApp(
        with_partitions(partitions),
        change=lambda last, asked: app(dataclasses.replace(last.channels[0], retries=asked)),
    )


class Wordy(Collector):
    """A metric of the user's own, of more bytes than the buffers of a socket take."""

    def collect(self) -> Iterable[Metric]:
        return [Metric("wordy", "x" * 15_000_000, "gauge")]


def retries_in(text: str) -> int:
    (line,) = (
        line for line in text.splitlines() if line.startswith("reactive_kafka_retries_total{")
    )
    return int(float(line.rpartition(" ")[2]))


async def test_who_asks_while_a_scrape_is_made_gets_the_next_one_with_all_the_others() -> None:
    """Row J4 of the faults: the loop reads the facts as often as a scrape is made, however many
    ask.
    """
    served = changing_app(1000)
    transport = httpx.ASGITransport(app=make_asgi(served))
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        first = asyncio.create_task(client.get("/metrics"))
        while served.looks == 0:  # noqa: ASYNC110 - nobody sets an event for that
            await asyncio.sleep(0)
        others = await asyncio.gather(*(client.get("/metrics") for _ in range(50)))
        assert retries_in((await first).text) == 1
        assert {retries_in(answer.text) for answer in others} == {2}, "of a time after they asked"
        assert retries_in((await client.get("/metrics")).text) == 3
        openmetrics = await client.get(
            "/metrics", headers={"accept": "application/openmetrics-text"}
        )
        assert openmetrics.text.endswith("# EOF\n")


async def test_slow_scrapers_hold_few_texts_however_many_there_are() -> None:
    """Row J2 of the faults."""
    served = changing_app(1)
    served.registry.register(Wordy())
    async with (
        serve(make_asgi(served), HOST, 0) as server,
        httpx.AsyncClient(trust_env=False, timeout=60) as client,
    ):
        async with crowd(server, MOST_ANSWERS + 4) as slow:
            for number, (_, writer) in enumerate(slow, 1):
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(ASKS % b"/metrics")
                while served.looks < min(number, MOST_ANSWERS):  # noqa: ASYNC110 - nobody sets an event for that
                    await asyncio.sleep(0.01)
            assert await all_probes(server) == {200}
            held = await client.get(f"{server.url}/metrics")
            assert retries_in(held.text) == MOST_ANSWERS, "the newest that there is"
            assert sum(isinstance(one, RenderedScrape) for one in gc.get_objects()) == MOST_ANSWERS
            assert served.looks == MOST_ANSWERS
        for _ in range(500):
            if not any(isinstance(one, RenderedScrape) for one in gc.get_objects()):
                break
            await asyncio.sleep(0.01)
        else:
            pytest.fail("the texts of clients that are gone are kept")
        assert retries_in((await client.get(f"{server.url}/metrics")).text) == MOST_ANSWERS + 1


async def test_a_scraper_that_is_cancelled_while_it_waits_leaves_no_text_behind() -> None:
    """An ASGI server may cancel the request of a client that has left."""
    scrapes = Scrapes(lambda: FactsApp().registry)

    async def send(message: object) -> None:
        """The client takes all at once."""

    taken = await scrapes.answer("")
    waiting = asyncio.create_task(scrapes.answer(""))
    await asyncio.sleep(0)
    await taken({}, send, send)  # type: ignore[arg-type]
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    del taken, waiting
    gc.collect()
    assert not any(isinstance(one, RenderedScrape) for one in gc.get_objects())
