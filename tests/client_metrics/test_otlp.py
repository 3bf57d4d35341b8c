"""What is written as OTLP is what a Protobuf library reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.client_metrics.otlp import Point, Reading, Series, metrics_data
from tests.client_metrics.otlp_messages import read

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
ATTRIBUTES = st.dictionaries(TEXTS, TEXTS, max_size=3)
VALUES = st.floats(allow_nan=False)
TIMES = st.integers(0, 2**63)
POINTS = st.builds(
    Point,
    st.builds(Series, TEXTS, ATTRIBUTES.map(lambda attributes: tuple(attributes.items()))),
    VALUES,
    st.booleans(),
)


@given(st.lists(POINTS, max_size=6), ATTRIBUTES, TEXTS, TEXTS, TIMES, TIMES, st.booleans())
def test_every_point_is_read_as_it_was_written(
    points: list[Point],
    labels: dict[str, str],
    scope: str,
    version: str,
    began: int,
    at: int,
    is_delta: bool,
) -> None:
    reading = Reading(
        points=tuple(points),
        resource=labels,
        scope=(scope, version),
        began_ns=began,
        at_ns=at,
        is_delta=is_delta,
    )

    found = read(metrics_data(reading))

    assert found.labels == labels
    assert found.scope == (scope, version)
    of_a_sum = 1 if is_delta else 2
    expected = [
        (
            point.series.name,
            dict(point.series.attributes),
            point.value,
            of_a_sum if point.is_sum else 0,
            began if point.is_sum else 0,
            at,
        )
        for point in points
    ]
    key = repr
    assert sorted(map(tuple, found.points), key=key) == sorted(expected, key=key)
