"""The reference covers all of the public API: its pages, its errors and their messages."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from functools import cache

import pytest

import reactive_kafka
import reactive_kafka.testing
from docs_tools.repository import ROOT
from reactive_kafka import errors

API = ROOT / "docs" / "api"
ERRORS = (ROOT / "docs" / "errors.md").read_text()


def names_of_the_pages() -> Counter[str]:
    """Each name that a page of the reference shows -> how often."""
    texts = [page.read_text() for page in API.glob("*.md")]
    return Counter(
        name for text in texts for name in re.findall(r"^<!-- api: (\S+)", text, re.MULTILINE)
    )


def public_names() -> set[str]:
    return {f"reactive_kafka.{name}" for name in reactive_kafka.__all__} | {
        f"reactive_kafka.testing.{name}" for name in reactive_kafka.testing.__all__
    }


def test_every_public_name_is_on_one_page_of_the_reference() -> None:
    assert names_of_the_pages() == Counter(public_names())


def test_every_public_name_has_a_docstring() -> None:
    # An alias of a type has its docstring in the source, where tools for documentation find it.
    without = [
        name
        for module in (reactive_kafka, reactive_kafka.testing)
        for name in module.__all__
        if name != "CallNext" and not inspect.getdoc(getattr(module, name))
    ]
    assert without == []


def members_without_docstring(public: type) -> list[str]:
    found = []
    for name, member in vars(public).items():
        function = member.fget if isinstance(member, property) else member
        function = getattr(function, "__func__", function)
        is_method = inspect.isfunction(function)
        if is_method and not name.startswith("_") and not inspect.getdoc(getattr(public, name)):
            found.append(name)
    return found


@pytest.mark.parametrize("name", sorted(reactive_kafka.__all__))
def test_every_public_method_has_a_docstring(name: str) -> None:
    member = getattr(reactive_kafka, name)
    if inspect.isclass(member):
        assert members_without_docstring(member) == []


def rows(section: str) -> list[str]:
    """The first cells of the table of a section, or of all tables."""
    text = ERRORS if not section else ERRORS.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(.+?)` \|", text, re.MULTILINE)


def test_every_error_class_has_one_row_with_cause_and_cure() -> None:
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.ReactiveKafkaError)
    }
    named = [row for row in rows("") if row not in rows("Messages")]
    assert Counter(named) == Counter(classes)


@cache
def texts_of_the_package() -> str:
    """Every string of the package, with ``…`` for what is put into it, one a line."""
    found = []
    for path in (ROOT / "reactive_kafka").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    str(part.value) if isinstance(part, ast.Constant) else "…"
                    for part in node.values
                ]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


@pytest.mark.parametrize("message", rows("Messages"))
def test_every_message_of_the_page_is_one_of_the_package(message: str) -> None:
    parts = [re.escape(part) for part in re.split("…", message)]
    assert re.search("[^\n]*".join(parts), texts_of_the_package()), message
