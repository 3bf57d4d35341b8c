"""Imports go one way: down the file map of docs/internals.md. Heavy packages have one room each."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests import pages

PACKAGE = pages.ROOT / "reactive_kafka"
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
PUBLIC = "__init__.py"  # re-exports what users need, from anywhere

HOMES = {
    "aiokafka": r"broker/aiokafka_\w+\.py",
    "pyspark": r"spark/\w+\.py",
    "py4j": r"spark/\w+\.py",
    "pyarrow": r"spark/\w+\.py",
    "prometheus_client": r"observe/prometheus\.py",
    "confluent_kafka": r"broker/embedded\.py",
    "uvicorn": r"http/server\.py",
    "click": r"cli/.+\.py",
    "rich": r"cli/demo/screen\.py",
    "pytest": r"testing/plugin\.py",
}
FORBIDDEN_TO_RULES = {"asyncio", "anyio", "logging", "time", "threading", "socket", "os", "subprocess"}


def rows() -> list[tuple[str, list[str]]]:
    """room -> its files and folders, from the top of the map."""
    text = (pages.ROOT / "docs" / "internals.md").read_text()
    section = text.partition("## File map")[2].partition("\n## ")[0]
    found = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE)
    return [(room, re.findall(r"`([^`]+)`", files)) for room, files in found if "`" in files]


def row_of(module: str) -> int:
    """The row of a module; the longest entry that fits it counts."""
    fitting = [
        (len(entry), row)
        for row, (_, entries) in enumerate(rows())
        for entry in entries
        if module == entry or (entry.endswith("/") and module.startswith(entry))
    ]
    assert fitting, f"{module} is not on the file map"
    return max(fitting)[1]


def imported_by(module: str, *, types_too: bool = True) -> Iterator[str]:
    """Dotted names of what a module imports, wherever in it."""
    tree = ast.parse((PACKAGE / module).read_text())
    for node in ast.walk(tree):
        if not types_too and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{module}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(dotted: str) -> str | None:
    """The module of the package that a dotted name is, or is in."""
    parts = dotted.split(".")[1:] if dotted.startswith("reactive_kafka.") else []
    for end in range(len(parts), 0, -1):
        path = "/".join(parts[:end])
        for module in (f"{path}.py", f"{path}/__init__.py"):
            if module in MODULES:
                return module
    return None


@pytest.mark.parametrize("module", [module for module in MODULES if module != PUBLIC])
def test_imports_go_down_the_file_map(module: str) -> None:
    upwards = [
        target
        for dotted in imported_by(module)
        if (target := ours(dotted)) is not None and row_of(target) < row_of(module)
    ]
    assert upwards == []


@pytest.mark.parametrize("module", MODULES)
def test_each_heavy_package_has_one_room(module: str) -> None:
    used = {dotted.split(".")[0] for dotted in imported_by(module, types_too=False)}
    strangers = {name for name in used & HOMES.keys() if not re.fullmatch(HOMES[name], module)}
    assert strangers == set()


def test_the_rules_import_nothing_that_waits_logs_or_tells_the_time() -> None:
    names = [room for room, _ in rows()]
    rules = [module for module in MODULES if module != PUBLIC and row_of(module) == names.index("rules")]
    found = {
        module: used
        for module in rules
        if (used := {dotted.split(".")[0] for dotted in imported_by(module)} & FORBIDDEN_TO_RULES)
    }
    assert found == {}
    assert len(rules) > 20


def test_every_entry_of_the_map_exists() -> None:
    entries = [entry for _, entries in rows() for entry in entries]
    assert [entry for entry in entries if not (PACKAGE / entry).exists()] == []
    assert len(entries) == len(set(entries)) > 30


def test_importing_the_package_loads_no_extra_no_spark_and_no_server() -> None:
    heavy = sorted({*HOMES, "starlette", "msgspec", "yaml", "pandas", "uvloop"})
    code = f"import sys, reactive_kafka; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
