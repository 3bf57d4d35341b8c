"""How often the garbage collector looks at what is young, while an application runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from reactive_kafka.runtime.loop import MOST_YOUNG_OBJECTS, YOUNG_OBJECTS, fewer_collections

DEFAULT = (700, 10, 10)


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*DEFAULT)
    yield
    gc.set_threshold(*before)


def test_it_looks_more_seldom_the_more_handlers_may_run_and_afterwards_as_before() -> None:
    with fewer_collections(1):
        few = gc.get_threshold()
    assert gc.get_threshold() == DEFAULT
    with fewer_collections(10_000):
        many = gc.get_threshold()
    assert few[0] > YOUNG_OBJECTS
    assert many[0] > few[0] + 4 * 10_000, (
        "a wave of handlers that wait is four containers each at least"
    )
    assert few[1:] == many[1:] == DEFAULT[1:]


def test_a_concurrency_that_means_no_limit_does_not_turn_the_collector_off() -> None:
    with fewer_collections(2**31 - 1):
        assert gc.get_threshold() == (MOST_YOUNG_OBJECTS, *DEFAULT[1:])
    assert gc.get_threshold() == DEFAULT


def test_what_somebody_has_set_stays() -> None:
    gc.set_threshold(50_000, 20, 20)
    with fewer_collections(10_000):
        assert gc.get_threshold() == (50_000, 20, 20)
    assert gc.get_threshold() == (50_000, 20, 20)


def test_what_is_set_meanwhile_stays_too() -> None:
    with fewer_collections(1):
        gc.set_threshold(50_000, 20, 20)
    assert gc.get_threshold() == (50_000, 20, 20)
