"""Writes metrics as OTLP, in which brokers get them. Pure.

It is the message ``MetricsData`` of OpenTelemetry's ``metrics.proto``, of which KIP-714 uses gauges
and sums with numbers. That is so little that it needs no library. The numbers below are those of
the fields; ``tests/client_metrics/test_otlp.py`` reads the result with a Protobuf library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

_VARINT = 0
_FIXED_64 = 1
_LENGTH = 2

_RESOURCE_METRICS = 1
_RESOURCE = 1
_SCOPE_METRICS = 2
_RESOURCE_ATTRIBUTES = 1
_SCOPE = 1
_SCOPE_NAME = 1
_SCOPE_VERSION = 2
_METRICS = 2
_METRIC_NAME = 1
_METRIC_GAUGE = 5
_METRIC_SUM = 7
_DATA_POINTS = 1
_SUM_TEMPORALITY = 2
_SUM_IS_MONOTONIC = 3
_POINT_START = 2
_POINT_TIME = 3
_POINT_AS_DOUBLE = 4
_POINT_ATTRIBUTES = 7
_KEY = 1
_VALUE = 2
_STRING_VALUE = 1

_DELTA = 1
_CUMULATIVE = 2

_TIME = Struct("<Q")
_DOUBLE = Struct("<d")


class Series(NamedTuple):
    """The name of a metric and its attributes: pairs of name and value."""

    name: str
    attributes: tuple[tuple[str, str], ...] = ()


class Point(NamedTuple):
    """The value of one series. A sum only grows; anything else is a gauge."""

    series: Series
    value: float
    is_sum: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Points that were read at the same moment, and what they belong to."""

    points: tuple[Point, ...]
    # Describes the client: names and values.
    resource: Mapping[str, str]
    # Names and version of what has measured.
    scope: tuple[str, str]
    # When the sums began, and when they were read, in nanoseconds since the epoch.
    began_ns: int
    at_ns: int
    # True: the sums are what was added since ``began_ns``, by the last push.
    is_delta: bool


def metrics_data(reading: Reading) -> bytes:
    """Return the points as an OTLP message."""
    resource = bytearray()
    for attribute in reading.resource.items():
        _put(resource, _RESOURCE_ATTRIBUTES, _attribute(*attribute))
    scope = bytearray()
    name, version = reading.scope
    _put(scope, _SCOPE_NAME, name.encode())
    _put(scope, _SCOPE_VERSION, version.encode())
    scope_metrics = bytearray()
    _put(scope_metrics, _SCOPE, scope)
    for metric in _metrics(reading):
        _put(scope_metrics, _METRICS, metric)
    resource_metrics = bytearray()
    _put(resource_metrics, _RESOURCE, resource)
    _put(resource_metrics, _SCOPE_METRICS, scope_metrics)
    data = bytearray()
    _put(data, _RESOURCE_METRICS, resource_metrics)
    return bytes(data)


def _metrics(reading: Reading) -> Iterable[bytearray]:
    """Return each metric with all of its points."""
    by_metric: dict[tuple[str, bool], list[Point]] = {}
    for point in reading.points:
        by_metric.setdefault((point.series.name, point.is_sum), []).append(point)
    for (name, is_sum), points in by_metric.items():
        values = bytearray()
        for point in points:
            _put(values, _DATA_POINTS, _point(point, reading))
        if is_sum:
            _put_number(values, _SUM_TEMPORALITY, _DELTA if reading.is_delta else _CUMULATIVE)
            _put_number(values, _SUM_IS_MONOTONIC, 1)
        metric = bytearray()
        _put(metric, _METRIC_NAME, name.encode())
        _put(metric, _METRIC_SUM if is_sum else _METRIC_GAUGE, values)
        yield metric


def _point(point: Point, reading: Reading) -> bytearray:
    written = bytearray()
    if point.is_sum:
        _put_fixed(written, _POINT_START, _TIME.pack(reading.began_ns))
    _put_fixed(written, _POINT_TIME, _TIME.pack(reading.at_ns))
    _put_fixed(written, _POINT_AS_DOUBLE, _DOUBLE.pack(point.value))
    for attribute in point.series.attributes:
        _put(written, _POINT_ATTRIBUTES, _attribute(*attribute))
    return written


def _attribute(key: str, value: str) -> bytearray:
    text = bytearray()
    _put(text, _STRING_VALUE, value.encode())
    written = bytearray()
    _put(written, _KEY, key.encode())
    _put(written, _VALUE, text)
    return written


def _put(out: bytearray, field: int, content: bytes | bytearray) -> None:
    """Append a field of text, bytes or another message."""
    _put_varint(out, field << 3 | _LENGTH)
    _put_varint(out, len(content))
    out += content


def _put_fixed(out: bytearray, field: int, content: bytes) -> None:
    _put_varint(out, field << 3 | _FIXED_64)
    out += content


def _put_number(out: bytearray, field: int, value: int) -> None:
    _put_varint(out, field << 3 | _VARINT)
    _put_varint(out, value)


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
