"""Configurations that stand in the sources: as text, as tables in code, as arguments of the tests'
shorthands.
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Iterator
from typing import Any

import yaml

from reactive_kafka.config.keys import NAMED_SECTIONS, PLAIN_SECTIONS
from tests import pages
from tests.config import loading
from tests.pages import PAGES, ROOT

SECTIONS = NAMED_SECTIONS.keys() | PLAIN_SECTIONS.keys()
_SHORTHANDS = {"incoming": loading.incoming, "outgoing": loading.outgoing}


def configurations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Place -> tables, of docs, examples and tests; many are broken on purpose."""
    for page in PAGES:
        for block in pages.blocks(page):
            yield from ((block.where, tables) for tables in _in_text(block.text))
            if block.language == "python":
                yield from ((block.where, tables) for tables in _in_code(block.text))
    for folder in ("examples", "tests", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from (
                (str(path.relative_to(ROOT)), tables) for tables in _in_code(path.read_text())
            )
        for path in sorted((ROOT / folder).rglob("*.toml")):
            yield from (
                (str(path.relative_to(ROOT)), tables) for tables in _in_text(path.read_text())
            )


def _in_code(source: str) -> Iterator[dict[str, Any]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 8:
            yield from _in_text(node.value)
        elif isinstance(node, ast.Dict):
            tables = _literal(node)
            if is_configuration(tables):
                yield tables
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in _SHORTHANDS
        ):
            given = {each.arg: _literal(each.value) for each in node.keywords}
            if None not in given and ... not in given.values():
                yield _SHORTHANDS[node.func.id](**given)


def _literal(node: ast.expr) -> Any:
    """Its value, or ``...`` where it is none by itself."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ...


def _in_text(text: str) -> Iterator[dict[str, Any]]:
    if not any(name in text for name in SECTIONS):
        return
    for parse in (tomllib.loads, yaml.safe_load, json.loads):
        try:
            tables = parse(text)
        except (ValueError, yaml.YAMLError, RecursionError):
            continue
        if is_configuration(tables):
            yield tables
            return


def is_configuration(tables: Any) -> bool:
    """Whether there is a section in it, and nothing that JSON cannot say."""
    if not isinstance(tables, dict) or not tables.keys() & SECTIONS:
        return False
    try:
        return bool(json.loads(json.dumps(tables)) == tables)
    except (TypeError, ValueError):
        return False
