"""A trace goes on through whatever becomes of a record: handlers, sends, retries, dead letters and
their replay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from reactive_kafka import App, Batch, Message, Record
from reactive_kafka.testing import FakeClock, TestApp, run_in_virtual_time
from tests.app.helpers import in_virtual_time, make_app, make_broker, running, send
from tests.dead_letters.letters_topic import replay_all
from tests.tracing.helpers import (
    Header,
    Spans,
    contexts,
    is_child,
    producers,
    provided,
    traceparent,
)

FAILURES = {"ok": 0, "in place": 1, "delayed": 2, "dead": 4}
"""How often a record fails: with two calls in place and one delayed retry, the fourth failure makes
a dead letter.
"""
SHAPES = ("returns", "forwards", "yields", "emits", "batch")


@dataclass
class Flow:
    """Handlers in a row, each of a shape; what becomes of a number in a stage is its fate there."""

    shapes: Sequence[str]
    fates: Mapping[tuple[int, int], str]
    is_on: bool = True
    calls: dict[tuple[int, int], int] = field(default_factory=dict)

    def app(self) -> App:
        incoming = {
            f"s{stage}": {
                "group_id": f"g{stage}",
                "auto_offset_reset": "earliest",
                "retry": {"max_attempts": 2, "backoff": "10ms"},
                "failure_strategy": "delayed-retry-topic",
                "delayed_retry": {"topics": [f"s{stage}_retry_1000"], "max_retries": 1},
                "dead_letter_queue": {"topic": f"dead{stage}"},
                "batch_max_records": 1,
            }
            for stage in range(len(self.shapes))
        }
        outgoing = {f"o{stage}": {"topic": f"s{stage}"} for stage in range(1, len(self.shapes) + 1)}
        app = App({"incoming": incoming, "outgoing": outgoing, "tracing": {"enabled": self.is_on}})
        for stage, shape in enumerate(self.shapes):
            self._handled(app, stage, shape)
        return app

    def _handle(self, stage: int, number: int) -> int:
        calls = self.calls[stage, number] = self.calls.get((stage, number), 0) + 1
        if calls <= FAILURES[self.fates.get((stage, number), "ok")]:
            raise ValueError(f"call {calls} of {number}")
        return number

    def _handled(self, app: App, stage: int, shape: str) -> None:
        out = f"o{stage + 1}"
        emitter = app.emitter(out)

        async def returns(number: int) -> int:
            return self._handle(stage, number)

        async def forwards(message: Message[int]) -> Record:
            return Record(self._handle(stage, message.payload), headers=message.headers)

        async def yields(number: int) -> AsyncIterator[int]:
            yield self._handle(stage, number)

        async def emits(number: int) -> None:
            await emitter.send(self._handle(stage, number))

        async def batch(batch: Batch[int]) -> None:
            for number in batch.payloads:
                await emitter.send(self._handle(stage, number))

        handler: Any = {one.__name__: one for one in (returns, forwards, yields, emits, batch)}[
            shape
        ]
        app.incoming(f"s{stage}")(
            handler if shape in ("emits", "batch") else app.outgoing(out)(handler)
        )


async def replay(test: TestApp, stage: int) -> None:
    """Have the dead letters of a stage written back."""
    letters = f"dead{stage}"
    if letters in test.broker.topics():
        await replay_all(test.broker, tuple(test.app.settings.incoming.values()), letters)
        await test.settled()


def play(flow: Flow, numbers: int) -> dict[int, list[Header]]:
    """Send the numbers, replay what died, and say which contexts they have come out with."""
    found = dict[int, list[Header]]()

    async def main(clock: FakeClock) -> None:
        broker = make_broker()
        async with running(flow.app(), broker=broker) as test:
            for number in range(numbers):
                await test.send("s0", number, headers=[producers(number + 1)])
            await test.settled()
            for stage in range(len(flow.shapes)):
                await replay(test, stage)
            for record in test.records(f"s{len(flow.shapes)}"):
                found[int(record.value or b"")] = contexts(record.headers)
        await broker.close()

    run_in_virtual_time(main)
    assert len(found) == numbers
    return found


def of_context(spans: Sequence[ReadableSpan], context: Header) -> list[ReadableSpan]:
    """The calls with a record that has this context, the first of them first."""
    found = []
    for span in spans:
        contexts_of = (
            [link.context for link in span.links] if span.parent is None else [span.parent]
        )
        if any(
            context[1] == b"00-%032x-%016x-%02x" % (one.trace_id, one.span_id, one.trace_flags)
            for one in contexts_of
        ):
            found.append(span)
    return sorted(found, key=lambda span: span.start_time or 0)


@st.composite
def flows(draw: st.DrawFn) -> tuple[Flow, int]:
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
    numbers = draw(st.integers(1, 4))
    fates = {
        (stage, number): draw(st.sampled_from(tuple(FAILURES)))
        for stage in range(len(shapes))
        for number in range(numbers)
    }
    return Flow(shapes, fates), numbers


@settings(max_examples=40, deadline=None)
@given(drawn=flows())
def test_each_call_belongs_to_the_send_of_its_record_and_each_send_to_its_call(
    drawn: tuple[Flow, int],
) -> None:
    flow, numbers = drawn
    with provided() as spans:
        came_out = play(flow, numbers)
    left = {id(span) for span in spans.handling()}
    for number in range(numbers):
        context = producers(number + 1)
        for stage in range(len(flow.shapes)):
            topics = (f"process s{stage}", f"process s{stage}_retry_1000")
            calls = of_context([span for span in spans.handling() if span.name in topics], context)
            assert len(calls) == FAILURES[flow.fates[stage, number]] + 1
            assert [span.status.status_code is StatusCode.ERROR for span in calls] == [True] * (
                len(calls) - 1
            ) + [False]
            (sent,) = [span for span in spans.of(f"send s{stage + 1}") if is_child(span, calls[-1])]
            left -= {id(sent), *map(id, calls)}
            context = traceparent(sent)
        assert came_out[number] == [context]
    assert not left


@settings(max_examples=15, deadline=None)
@given(drawn=flows())
def test_where_it_is_off_no_header_is_touched(drawn: tuple[Flow, int]) -> None:
    flow, numbers = drawn
    flow.is_on = False
    with provided() as spans:
        came_out = play(flow, numbers)
    is_forwarded = all(shape == "forwards" for shape in flow.shapes)
    assert came_out == {
        number: [producers(number + 1)] if is_forwarded else [] for number in range(numbers)
    }
    assert spans.all() == ()


@in_virtual_time
async def test_retries_and_dead_letters_have_the_context_that_their_record_came_with(
    spans: Spans,
) -> None:
    app = make_app(
        failure_strategy="delayed-retry-topic",
        delayed_retry={"topics": ["orders_retry_1000"], "max_retries": 1},
    )

    @app.incoming("orders")
    async def handler(value: int) -> None:
        raise ValueError("never")

    async with running(app) as test:
        await test.send("orders", 1, headers=[producers(5)])
        await send(test, 2)
        await test.settled(60)
        letters = [contexts(record.headers) for record in test.records("dead-letter-topic-orders")]
    assert sorted(letters) == [[], [producers(5)]]
    assert spans.names() == ["process orders"] * 2 + ["process orders_retry_1000"] * 2
