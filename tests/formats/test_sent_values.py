"""What may be sent as a value, whoever sends it."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka import EncodeError, Record
from reactive_kafka.formats.sent_values import check_value


@pytest.mark.parametrize("value", [None, b"x", "x", 1, [1, {"a": [None]}], {"a": (1, 2)}])
def test_a_value_may_be_sent_alone_and_in_a_record(value: Any) -> None:
    check_value(value)
    check_value(Record(value))


@pytest.mark.parametrize("value", [Record(Record(1)), [Record(1)], {"a": [Record(1)]}])
def test_a_record_is_no_part_of_a_value(value: Any) -> None:
    with pytest.raises(EncodeError, match="a Record is what is sent"):
        check_value(value)


@pytest.mark.parametrize("depth", range(3))
def test_an_iterator_is_no_value_and_is_left_unread(depth: int) -> None:
    generator = (number for number in range(3))
    value: Any = generator
    for _ in range(depth):
        value = {"numbers": [value]}
    with pytest.raises(EncodeError, match="it can be read only once"):
        check_value(value)
    assert list(generator) == [0, 1, 2]
