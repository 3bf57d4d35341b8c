"""Memory channels from outside: what start-up refuses, and what health, metrics and pages show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from reactive_kafka import App, Batch, ConfigError
from reactive_kafka.testing import TestApp
from tests.app.helpers import in_virtual_time

NOBODY = "nothing sends to it: it needs an "


def refused(app: App) -> list[str]:
    """The lines of the report."""
    with pytest.raises(ConfigError) as report:
        app.configure()
    return list(report.value.problems)


def test_everything_that_is_wrong_is_in_one_report(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        """
[incoming.orders]
group_id = "g"
[memory.orders]
[memory.unfed]
[memory.unhandled]
max_in_flights = 5
[memory.clicks]
topic = "clicks"
max_in_flight = 0
"""
    )
    app = App(file)

    @app.incoming("orders")
    @app.outgoing("unhandled")
    async def orders(order: int) -> int: ...

    @app.incoming("unfed")
    async def unfed(order: int) -> None: ...

    @app.spark("clicks")
    def clicks(df: Any, batch: Any) -> None: ...

    app.emitter("clicks")
    lines = refused(app)
    (spark,) = [line for line in lines if line.startswith("@app.spark('clicks') of ")]
    assert spark.endswith(
        "[memory.clicks] is a memory channel: it has objects of this process, and Spark takes records of Kafka's"
    )
    lines.remove(spark)
    assert lines == [
        f"{file}, line 4: [memory.orders]: rename it: [incoming.orders] has the same name, so decorators could mean both",
        f"{file}, line 7: [memory.unhandled] max_in_flights = 5: unknown key; did you mean 'max_in_flight'?",
        f"{file}, line 9: [memory.clicks] topic = 'clicks': does not belong here but in [incoming.X] or [outgoing.X]",
        f"{file}, line 10: [memory.clicks] max_in_flight = 0: expected a whole number of at least 1",
        f"{file}, line 4: [memory.orders]: {NOBODY}@app.outgoing('orders') or app.emitter('orders')",
        f"{file}, line 5: [memory.unfed]: {NOBODY}@app.outgoing('unfed') or app.emitter('unfed')",
        f"{file}, line 6: [memory.unhandled]: no handler takes its values: it needs an @app.incoming('unhandled')",
    ]


def test_a_circle_is_named_and_a_way_that_joins_again_is_none() -> None:
    app = App({"memory": {name: {} for name in "abcd"}})
    app.emitter("a")

    async def handler(value: int) -> int: ...

    for takes, sends in [("a", "bc"), ("b", "d"), ("c", "d")]:
        decorated = lambda value: handler(value)  # noqa: E731
        decorated.__annotations__["value"] = int
        for name in sends:
            app.outgoing(name)(decorated)
        app.incoming(takes)(decorated)

    @app.incoming("d")
    async def last(value: int) -> None: ...

    assert list(app.configure().memory) == ["a", "b", "c", "d"]
    app.outgoing("b")(last)
    (line,) = refused(app)
    assert line in (
        "code: [memory.b]: [memory.b] -> [memory.d] -> [memory.b] is a circle: each ack would wait for itself",
        "code: [memory.d]: [memory.d] -> [memory.b] -> [memory.d] is a circle: each ack would wait for itself",
    )


def test_a_handler_that_sends_to_its_own_channel_is_a_circle() -> None:
    app = App({"memory": {"a": {}}})

    @app.incoming("a")
    @app.outgoing("a")
    async def handler(value: int) -> int: ...

    assert refused(app) == [
        "code: [memory.a]: [memory.a] -> [memory.a] is a circle: each ack would wait for itself"
    ]


def test_a_misspelt_name_is_told_with_the_right_one() -> None:
    app = App({"memory": {"stage": {}}})
    app.emitter("stage")

    @app.incoming("stag")
    @app.outgoing("stgae")
    async def handler(value: int) -> int: ...

    lines = refused(app)
    assert lines[0].endswith(
        "no [outgoing.stgae] is configured in code (there are 'stage'); did you mean 'stage'?"
    )
    assert lines[1].endswith(
        "no [incoming.stag] is configured in code (there are 'stage'); did you mean 'stage'?"
    )


def test_hooks_of_partitions_and_two_handlers_are_refused() -> None:
    app = App({"memory": {"stage": {}}})
    app.emitter("stage")

    @app.incoming("stage")
    async def one(value: int) -> None: ...

    @app.incoming("stage")
    async def two(value: int) -> None: ...

    @app.on_assigned("stage")
    async def hook(partitions: frozenset[Any]) -> None: ...

    hooked, twice = refused(app)
    assert hooked.startswith("@app.on_assigned('stage') of ")
    assert hooked.endswith(
        "[memory.stage] is a memory channel, which has a handler, and neither partitions nor positions"
    )
    assert twice.startswith("channel 'stage' has two handlers: ")


def test_the_environment_sets_its_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REACTIVE_KAFKA__MEMORY__STAGE__MAX_IN_FLIGHT", "7")
    app = App({"kafka": {"max_in_flight": 9}, "memory": {"stage": {}, "other": {}}})
    for name in ("stage", "other"):
        app.emitter(name)

    @app.incoming("stage")
    @app.incoming("other")
    async def handler(batch: Batch[int]) -> None: ...

    settings = app.configure().memory
    assert (settings["stage"].max_in_flight, settings["other"].max_in_flight) == (7, 1000)


@in_virtual_time
async def test_health_metrics_and_pages_show_it() -> None:
    app = App({"memory": {"stage": {}}})

    @app.outgoing("stage")
    async def source() -> AsyncIterator[int]:
        yield 1
        yield 2

    @app.incoming("stage")
    async def handler(value: int) -> None:
        if value == 2:
            raise ValueError("no")

    async with TestApp(app) as test:
        await test.settled()
        while sum(app.facts().outgoing[0].sent.values()) < 2:
            await test.settled()
        assert app.health().to_json() == {
            "status": "UP",
            "checks": [
                {
                    "name": "stage",
                    "status": "UP",
                    "data": {
                        "direction": "memory",
                        "state": "running",
                        "reason": None,
                        "in_flight": 0,
                        "postponed": [],
                    },
                }
            ],
        }
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app.asgi), base_url="http://127.0.0.1"
        )
        (channel,) = (await client.get("/api/channels")).json()["outgoing"]
        assert (channel["channel"], channel["direction"], channel["sent"]) == (
            "stage",
            "memory",
            {"ok": 1, "failed": 1},
        )
        assert "stage" in (await client.get("/")).text
        metrics = (await client.get("/metrics")).text
        assert 'reactive_kafka_records_sent_total{channel="stage",outcome="failed"} 1.0' in metrics
        assert 'reactive_kafka_channel_up{channel="stage"} 1.0' in metrics
