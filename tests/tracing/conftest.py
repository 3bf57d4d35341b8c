"""The tracer provider of a test, whose spans are kept in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tracing.helpers import Spans, provided


@pytest.fixture
def spans() -> Iterator[Spans]:
    """The spans that have ended; the application finds their provider as one that it has set
    itself.
    """
    with provided() as spans:
        yield spans
