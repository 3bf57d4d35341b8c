"""The span of a batch on Spark is the current one in its function, which runs in a thread."""

from __future__ import annotations

from typing import Any

from opentelemetry import trace

from reactive_kafka import IncomingSettings, SparkBatch
from reactive_kafka.spark.session.spark_engine import SparkEngine
from tests.spark.records import CLICKS_0, Raw, on_spark, part_of, runner_of
from tests.tracing.helpers import context_of, number_of, producers, provided


@on_spark
async def test_the_function_runs_in_the_span_of_its_run(engine: SparkEngine) -> None:
    with provided() as spans:
        seen = list[int]()

        def function(df: Any, batch: SparkBatch) -> None:
            seen.append(trace.get_current_span().get_span_context().span_id)

        settings = IncomingSettings(name="clicks", topics=("clicks",), group_id="billing")
        runner = runner_of(
            engine,
            function,
            watch=spans.of_calls(settings),
        )
        for number in (1, 2):
            part = part_of(CLICKS_0, [Raw(0, headers=[producers(number)]), Raw(1)])
            assert await runner.run_batch([part], 1) == []
        found = spans.of("process clicks")
        assert seen == [context_of(span).span_id for span in found]
        assert [[number_of(link.context) for link in span.links] for span in found] == [[1], [2]]
