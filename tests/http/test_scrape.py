"""A real Prometheus scrapes the endpoints and is asked by its own query API."""

import dataclasses
from pathlib import Path

import httpx
import pytest

from reactive_kafka.http.asgi import make_asgi
from reactive_kafka.http.server import serve
from tests.harness.prometheus import running_prometheus
from tests.http.applike import FactsApp
from tests.observe.samples import ORDERS_0, app, channel, durations, outgoing, poison, spark, totals

pytestmark = pytest.mark.prometheus

AT = '{channel="orders",topic="orders",partition="0"}'


async def test_prometheus_shows_poison_and_its_end(tmp_path: Path) -> None:
    served = FactsApp()
    async with (
        serve(make_asgi(served), "127.0.0.1", 0) as server,
        running_prometheus([f"127.0.0.1:{server.port}"], tmp_path) as prometheus,
    ):
        await prometheus.until("up", 1)
        await prometheus.until('reactive_kafka_channel_up{channel="orders"}', 1)
        assert await prometheus.value(f"reactive_kafka_poison_records_total{AT}") == 0

        poisoned = channel(poison=(poison(),), totals={ORDERS_0: totals(received=20, poison=1)})
        served.now = app(poisoned)
        await prometheus.until('reactive_kafka_channel_up{channel="orders"}', 0)
        assert await prometheus.value(f"reactive_kafka_poison_records_total{AT}") == 1

        served.now = app(dataclasses.replace(poisoned, poison=()))
        await prometheus.until('reactive_kafka_channel_up{channel="orders"}', 1)
        assert await prometheus.value(f"reactive_kafka_poison_records_total{AT}") == 1


async def test_prometheus_takes_every_metric_with_its_type(tmp_path: Path) -> None:
    busy = channel(handler_durations=durations(0.02))
    served = FactsApp(app(busy, outgoing=(outgoing(),), spark=(spark(),)))
    async with (
        serve(make_asgi(served), "127.0.0.1", 0) as server,
        running_prometheus([f"127.0.0.1:{server.port}"], tmp_path) as prometheus,
    ):
        await prometheus.until("reactive_kafka_handler_duration_seconds_count", 1)
        assert (
            await prometheus.value(
                "histogram_quantile(1, reactive_kafka_handler_duration_seconds_bucket)"
            )
            == 0.025
        )
        assert await prometheus.value(f"reactive_kafka_position{AT}") == 20
        assert await prometheus.value('reactive_kafka_commits_total{outcome="ok"}') == 3
        assert await prometheus.value('reactive_kafka_records_sent_total{outcome="ok"}') == 16
        assert await prometheus.value('reactive_kafka_spark_jobs_total{outcome="ok"}') == 2
        async with httpx.AsyncClient(trust_env=False) as client:
            known = (await client.get(f"{prometheus.url}/api/v1/targets/metadata")).json()["data"]
        types = {entry["metric"]: entry["type"] for entry in known}
        # OpenMetrics knows a counter by its name without "_total"
        assert types["reactive_kafka_commits"] == "counter"
        assert types["reactive_kafka_lag_records"] == "gauge"
        assert types["reactive_kafka_commit_duration_seconds"] == "histogram"


async def test_prometheus_stores_the_trace_of_a_duration(tmp_path: Path) -> None:
    traced = durations(0.02, traced=(0.02, 0xABC, 0xDEF))
    served = FactsApp(app(channel(handler_durations=traced)))
    async with (
        serve(make_asgi(served), "127.0.0.1", 0) as server,
        running_prometheus([f"127.0.0.1:{server.port}"], tmp_path) as prometheus,
    ):
        await prometheus.until("reactive_kafka_handler_duration_seconds_count", 1)
        found = await prometheus.exemplars("reactive_kafka_handler_duration_seconds_bucket")
    assert found[0]["labels"] == {"trace_id": f"{0xABC:032x}", "span_id": f"{0xDEF:016x}"}
    assert float(found[0]["value"]) == 0.02
