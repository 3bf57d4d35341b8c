"""The providers of a test, whose spans and measurements are kept in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tracing.helpers import Measures, Spans, measured, provided


@pytest.fixture
def spans() -> Iterator[Spans]:
    """The spans that have ended; the application finds their provider as one that it has set
    itself.
    """
    with provided() as spans:
        yield spans


@pytest.fixture
def measures() -> Iterator[Measures]:
    """What is measured; the application finds the provider as one that it has set itself."""
    with measured() as measures:
        yield measures
