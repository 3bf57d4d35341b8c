"""The texts of exceptions, whoever wrote them, and the tree of our own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reactive_kafka
from reactive_kafka import TopicPartition, errors
from reactive_kafka.errors import HandlerError, describe, text_of

ROOT = Path(__file__).parent.parent


def raises(error: BaseException) -> Callable[[Any], NoReturn]:
    def __str__(self: object) -> NoReturn:
        raise error

    return __str__


def exception_whose_text(says: Callable[[Any], Any]) -> Exception:
    return type("Mute", (Exception,), {"__str__": says, "__repr__": says})("never seen")


@given(st.text())
def test_a_text_is_told_as_it_is_and_the_class_where_there_is_none(text: str) -> None:
    assert text_of(ValueError(text)) == (text or "ValueError")
    assert describe(ValueError(text)) in (f"ValueError: {text}", "ValueError")


@pytest.mark.parametrize(
    "says",
    [
        *(
            raises(error)
            for error in (TypeError("no"), RecursionError(), SystemExit(3), KeyboardInterrupt())
        ),
        lambda self: 5,
        lambda self: None,
        lambda self: int("x"),
    ],
)
def test_an_exception_that_has_no_text_is_told_by_its_class(says: Callable[[Any], Any]) -> None:
    mute = exception_whose_text(says)
    assert text_of(mute) == describe(mute) == "Mute"
    wrapped = HandlerError("orders", TopicPartition("orders", 0), 5, mute)
    assert str(wrapped) == "channel 'orders': orders-0 offset 5: Mute"


def drawn() -> dict[str, str]:
    """Error -> its parent, as the tree above the module draws them."""
    parents: dict[str, str] = {}
    above = ["ReactiveKafkaError"]
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"([│ ]*)[├└]── ([\w, ]+?)(?: \(\w+\))?(?:  |$)", line):
            depth = 1 + len(match[1]) // 4
            names = match[2].split(", ")
            parents.update(dict.fromkeys(names, above[depth - 1]))
            above[depth:] = names[-1:]
    return parents


def test_the_tree_has_every_error_of_the_module_under_its_base() -> None:
    base = errors.ReactiveKafkaError
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, base)
    ]
    assert drawn() == {
        kind.__name__: kind.__bases__[0].__name__ for kind in kinds if kind is not base
    }


def test_every_error_that_the_package_exports_is_in_the_tree() -> None:
    exported = [getattr(reactive_kafka, name) for name in reactive_kafka.__all__]
    names = {
        kind.__name__
        for kind in exported
        if isinstance(kind, type) and issubclass(kind, BaseException)
    }
    # Later is raised by handlers, and is no error.
    assert names - {"ReactiveKafkaError", "Later"} <= drawn().keys()


def test_escaping_imports_nothing_which_would_fail_without_descriptors() -> None:
    """Row D10 of the faults."""
    code = (
        "import sys; from reactive_kafka.errors import escaped; before = set(sys.modules); "
        r"print(escaped('\n\x1b\u2028\udc80\U000e0001'), set(sys.modules) - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == r"\n\x1b\u2028\udc80\U000e0001 set()" + "\n"
