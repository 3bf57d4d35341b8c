"""OTLP's messages as OpenTelemetry defines them, as far as metrics of clients need them, for
Google's Protobuf library.

Source: opentelemetry/proto/metrics/v1/metrics.proto, common/v1/common.proto, resource/v1/resource.proto.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_KINDS = descriptor_pb2.FieldDescriptorProto
_MESSAGES: dict[str, tuple[tuple[str, int, int | str, bool], ...]] = {
    "AnyValue": (("string_value", 1, _KINDS.TYPE_STRING, False),),
    "KeyValue": (("key", 1, _KINDS.TYPE_STRING, False), ("value", 2, "AnyValue", False)),
    "InstrumentationScope": (
        ("name", 1, _KINDS.TYPE_STRING, False),
        ("version", 2, _KINDS.TYPE_STRING, False),
    ),
    "Resource": (("attributes", 1, "KeyValue", True),),
    "NumberDataPoint": (
        ("attributes", 7, "KeyValue", True),
        ("start_time_unix_nano", 2, _KINDS.TYPE_FIXED64, False),
        ("time_unix_nano", 3, _KINDS.TYPE_FIXED64, False),
        ("as_double", 4, _KINDS.TYPE_DOUBLE, False),
        ("as_int", 6, _KINDS.TYPE_SFIXED64, False),
    ),
    "Gauge": (("data_points", 1, "NumberDataPoint", True),),
    "Sum": (
        ("data_points", 1, "NumberDataPoint", True),
        ("aggregation_temporality", 2, _KINDS.TYPE_INT32, False),
        ("is_monotonic", 3, _KINDS.TYPE_BOOL, False),
    ),
    "Metric": (
        ("name", 1, _KINDS.TYPE_STRING, False),
        ("gauge", 5, "Gauge", False),
        ("sum", 7, "Sum", False),
    ),
    "ScopeMetrics": (("scope", 1, "InstrumentationScope", False), ("metrics", 2, "Metric", True)),
    "ResourceMetrics": (
        ("resource", 1, "Resource", False),
        ("scope_metrics", 2, "ScopeMetrics", True),
    ),
    "MetricsData": (("resource_metrics", 1, "ResourceMetrics", True),),
}


def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="otlp.proto", package="otlp", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind, is_repeated in fields:
            label = _KINDS.LABEL_REPEATED if is_repeated else _KINDS.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=number, label=label)
            if isinstance(kind, str):
                field.type = _KINDS.TYPE_MESSAGE
                field.type_name = f".otlp.{kind}"
            else:
                field.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("otlp.MetricsData"))


_MetricsData = _message_class()


class ReadPoint(NamedTuple):
    """A point that was read."""

    name: str
    attributes: dict[str, str]
    value: float
    # 0: a gauge. 1: what was added since the last push. 2: since the start.
    temporality: int
    began_ns: int
    at_ns: int


class ReadData(NamedTuple):
    """A payload that was read."""

    labels: dict[str, str]
    scope: tuple[str, str]
    points: list[ReadPoint]

    def values(self) -> dict[str, float]:
        """Name -> value, for payloads in which each metric has one point."""
        return {point.name: point.value for point in self.points}


def read(payload: bytes) -> ReadData:
    """Read a payload. It has one resource, and one scope."""
    data = _MetricsData.FromString(payload)
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    points = [
        ReadPoint(
            metric.name,
            _texts(point.attributes),
            point.as_double,
            metric.sum.aggregation_temporality,
            point.start_time_unix_nano,
            point.time_unix_nano,
        )
        for metric in scope.metrics
        for point in (*metric.gauge.data_points, *metric.sum.data_points)
    ]
    assert all(metric.sum.is_monotonic for metric in scope.metrics if metric.HasField("sum"))
    return ReadData(
        _texts(resource.resource.attributes), (scope.scope.name, scope.scope.version), points
    )


def _texts(attributes: Any) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in attributes}
