"""What the tests of other rooms need of formats that cannot be used: that they are refused."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.formats import FormatError


def refused_at_start_up(match: str) -> Any:
    """Expect the error that planning reports as a problem of the configuration."""
    return pytest.raises(FormatError, match=match)


def refused_somewhere(match: str) -> Any:
    """Expect that a value does not pass, at the start-up or where it is decoded or encoded."""
    return pytest.raises((DecodeError, EncodeError, FormatError), match=match)
