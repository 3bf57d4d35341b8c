"""OpenTelemetry's semantic conventions, read from the package that OpenTelemetry generates from them.

Its version and its SHA-256 are those of ``constraints.txt``: opentelemetry-semantic-conventions.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.semconv.schemas import Schemas


@dataclass(frozen=True)
class Definition:
    """A name that the conventions define."""

    name: str
    text: str

    @property
    def is_deprecated(self) -> bool:
        return self.text.startswith("Deprecated")


def definitions(module: ModuleType) -> Iterator[Definition]:
    """The names that a module defines: ``NAME: Final = "name"``, and below it a text."""
    body = ast.parse(inspect.getsource(module)).body
    for statement, below in zip(body, [*body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or statement.value is None:
            continue
        name = ast.literal_eval(statement.value)
        text = ""
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            text = str(below.value.value).strip()
        yield Definition(name, text)


ATTRIBUTES = {
    each.name: each
    for module in (messaging_attributes, server_attributes, error_attributes)
    for each in definitions(module)
}
METRICS = {each.name: each for each in definitions(messaging_metrics)}
OPERATION_TYPES = {
    each.value
    for each in messaging_attributes.MessagingOperationTypeValues
    # The two that were renamed.
    if each.value not in ("deliver", "publish")
}
KAFKA = messaging_attributes.MessagingSystemValues.KAFKA.value
NEWEST_SCHEMA = list(Schemas)[-1].value


def defined_metrics() -> dict[str, Metric]:
    """Name -> the metric as the conventions' own functions create it, after one measurement."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    meter = provider.get_meter("conventions")
    messaging_metrics.create_messaging_client_operation_duration(meter).record(1)
    messaging_metrics.create_messaging_process_duration(meter).record(1)
    messaging_metrics.create_messaging_client_sent_messages(meter).add(1)
    messaging_metrics.create_messaging_client_consumed_messages(meter).add(1)
    data = reader.get_metrics_data()
    assert data is not None
    provider.shutdown()
    return {
        metric.name: metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
