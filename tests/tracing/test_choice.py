"""Where spans are made, and where nothing of tracing is in the way: it is decided at the start."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor

from reactive_kafka import App, MissingExtraError
from reactive_kafka.testing import TestApp
from tests.app.helpers import in_virtual_time, inside, make_broker, running
from tests.tracing.helpers import Spans, contexts, is_child, producers, provided, traceparent

HEADERS = [
    producers(5),
    ("baggage", b"tenant=acme"),
    ("mine", b"\xff"),
    producers(6),
    ("mine", None),
]


def passing_on(*, on_start: Any = None, **tables: Any) -> App:
    """A handler that passes records on with their headers."""
    from reactive_kafka import Message, Record

    orders = {"group_id": "billing", "auto_offset_reset": "earliest", **tables.pop("orders", {})}
    app = App(
        {
            "incoming": {"orders": orders},
            "outgoing": {"invoices": tables.pop("invoices", {})},
            "memory": {"m": {}},
        }
        | tables
    )
    app.emitter("m")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(message: Message[bytes]) -> Record:
        return Record(message.payload, headers=message.headers)

    @app.incoming("m")
    async def other(value: int) -> None: ...

    if on_start is not None:
        app.on_start(on_start)
    return app


async def passed(app: App) -> list[tuple[str, bytes | None]]:
    """The headers of a record that has passed."""
    async with running(app) as test:
        await test.send("orders", b"x", headers=HEADERS)
        await test.settled()
        (record,) = test.records("invoices")
    return list(record.headers)


def is_untouched(test: TestApp) -> bool:
    """Whether the hot path is that of a run without tracing."""
    run: Any = test.app._run
    channels = run.channels
    invoices, memory = channels.outgoing["invoices"], channels.outgoing["m"]
    workers: Any = inside(test.app).session.workers
    blueprint = inside(test.app).blueprint
    return (
        workers._runner._invocation.around is None
        and blueprint.watch is None
        and blueprint.receives is None
        and blueprint.services.connector is channels._services.connector
        and invoices.is_quick
        and invoices.writer.accept == invoices.writer._queue.accept
        and memory._traced is None
    )


@in_virtual_time
async def test_without_a_provider_nothing_is_done() -> None:
    assert await passed(passing_on()) == HEADERS
    async with running(passing_on()) as test:
        assert is_untouched(test)


@pytest.mark.parametrize("kind", ["proxy", "nothing", "disabled"])
@in_virtual_time
async def test_a_provider_that_makes_no_spans_is_none(kind: str) -> None:
    with pytest.MonkeyPatch.context() as environment:
        # A provider reads it when it is made.
        environment.setenv("OTEL_SDK_DISABLED", str(kind == "disabled"))
        with provided() as spans, pytest.MonkeyPatch.context() as patch:
            if kind != "disabled":
                provider = (
                    trace.ProxyTracerProvider() if kind == "proxy" else trace.NoOpTracerProvider()
                )
                patch.setattr(trace, "_TRACER_PROVIDER", provider)
            assert await passed(passing_on()) == HEADERS
            async with running(passing_on()) as test:
                assert is_untouched(test)
            assert spans.all() == ()


@in_virtual_time
async def test_it_is_turned_off(spans: Spans) -> None:
    off = {"tracing": {"enabled": False}}
    assert await passed(passing_on(**off)) == HEADERS
    async with running(passing_on(**off)) as test:
        assert is_untouched(test)
    assert spans.all() == ()


@in_virtual_time
async def test_a_channel_alone_is_turned_off(spans: Spans) -> None:
    assert await passed(passing_on(invoices={"tracing_enabled": False})) == HEADERS
    assert spans.names() == ["process orders"]
    spans.exporter.clear()
    headers = await passed(passing_on(orders={"tracing_enabled": False}))
    assert contexts(headers) == [traceparent(spans.only("send invoices"))]
    assert spans.only("send invoices").parent is None
    assert spans.names() == ["send invoices"]


@in_virtual_time
async def test_a_send_has_its_span_on_the_shortest_way_too(spans: Spans) -> None:
    orders = {"group_id": "billing", "auto_offset_reset": "earliest", "tracing_enabled": False}
    app = App({"incoming": {"orders": orders}, "outgoing": {"invoices": {"wait_for_write": False}}})
    calls = list[bytes]()
    emitter = app.emitter("invoices")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> bytes:
        calls.append(value)
        return value

    async with running(app) as test:
        for number in range(3):
            await test.send("orders", b"%d" % number)
            # From the second one on the partitions are known.
            await test.settled()
        for _ in range(3):
            await emitter.send_nowait(b"x")
        records = test.records("invoices")
    assert [contexts(record.headers) for record in records] == [
        [traceparent(one)] for one in spans.of("send invoices")
    ]
    assert (len(records), len(calls)) == (6, 3)


@in_virtual_time
async def test_a_provider_that_an_on_start_hook_sets_counts() -> None:
    with provided() as spans, pytest.MonkeyPatch.context() as patch:
        there = spans.provider
        patch.setattr(trace, "_TRACER_PROVIDER", None)

        async def start() -> None:
            patch.setattr(trace, "_TRACER_PROVIDER", there)

        headers = await passed(passing_on(on_start=start))
        assert contexts(headers) == [traceparent(spans.only("send invoices"))]
        assert is_child(spans.only("send invoices"), spans.only("process orders"))


def test_a_demand_without_the_extra_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)

    @in_virtual_time
    async def run() -> None:
        assert await passed(passing_on()) == HEADERS
        with pytest.raises(
            MissingExtraError, match=r"\[tracing\] enabled = true needs an extra: .*\[otel\]"
        ):
            # As `check` does.
            passing_on(tracing={"enabled": True}).configure()

    run()


async def told_at_the_start(caplog: pytest.LogCaptureFixture, **tables: Any) -> str:
    """What a run outside of tests says of its configuration."""
    broker = make_broker()
    app = App({"outgoing": {"invoices": {}}, "http": {"enabled": False}} | tables)
    # TestApp tells nothing: a test has changed the configuration.
    app._connector = broker.connector()
    caplog.clear()
    await app.start()
    await app.stop()
    await broker.close()
    return caplog.text


@in_virtual_time
async def test_a_demand_without_a_provider_is_told(caplog: pytest.LogCaptureFixture) -> None:
    said = (
        "[tracing] enabled = true has no effect: there was no tracer provider and no meter provider"
    )
    demanded = {"tracing": {"enabled": True}}
    assert said in await told_at_the_start(caplog, **demanded)
    assert "[tracing]" not in await told_at_the_start(caplog)
    with provided():
        assert "[tracing]" not in await told_at_the_start(caplog, **demanded)


class Broken(SpanProcessor):
    """As somebody's processor may be."""

    def on_start(self, span: object, parent_context: object = None) -> None:
        raise OSError("no exporter")

    def on_end(self, span: object) -> None:
        raise OSError("no exporter")


@in_virtual_time
async def test_what_tracing_raises_harms_no_record(
    spans: Spans, capsys: pytest.CaptureFixture[str]
) -> None:
    spans.provider.add_span_processor(Broken())
    headers = await passed(passing_on())
    assert [header for header in headers if header[0] == "mine"] == [
        ("mine", b"\xff"),
        ("mine", None),
    ]
    assert capsys.readouterr().err.count("OSError: no exporter") == 1


def test_the_package_imports_no_opentelemetry() -> None:
    code = "import sys, reactive_kafka.runtime.run; assert 'opentelemetry' not in sys.modules, 'imported'"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_a_run_that_is_turned_off_imports_none() -> None:
    code = """
import sys
from reactive_kafka.clock import SYSTEM_CLOCK
from reactive_kafka.config.tables import TracingSettings
from reactive_kafka.runtime.tracing import RunTracing
RunTracing(TracingSettings(enabled=False), SYSTEM_CLOCK)
assert 'opentelemetry' not in sys.modules, 'imported'
"""
    subprocess.run([sys.executable, "-c", code], check=True)
