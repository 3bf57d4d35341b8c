"""What README.md and docs/ say is so: their code runs, their keys, names, commands and tests
exist.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import httpx
import pytest
from opentelemetry import trace
from opentelemetry.metrics import _internal as metrics
from opentelemetry.util._once import Once

from reactive_kafka import App, TopicPartition
from reactive_kafka.cli.commands import MODULES
from reactive_kafka.config.client_properties import PROPERTIES
from reactive_kafka.config.keys import INCOMING, PLAIN_SECTIONS
from reactive_kafka.config.load import read_settings
from reactive_kafka.errors import ConfigError
from reactive_kafka.observe.catalogue import CATALOGUE, OF_A_SUPERVISOR
from reactive_kafka.testing import TestApp, run_in_virtual_time
from reactive_kafka.tracing.attributes import OWN
from tests import pages
from tests.faults.strategies import STRATEGIES, Strategy
from tests.pages import PAGES, ROOT, Block, Span, name

WITH_CODE = [
    page for page in PAGES if pages.blocks(page, "python") and page.name != "CONTRIBUTING.md"
]
SETTING = re.compile(r"([a-z][a-z_.]*) = (.+)")


# -- code blocks


@contextmanager
def laid_out(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's files in *folder*, which is the current one and the first to import from."""
    for block in pages.blocks(page):
        if block.file is not None:
            (folder / block.file).write_text(block.text)
        elif block.language == "toml":
            (folder / "reactive-kafka.toml").write_text(block.text)
    # A page may set providers, which a process takes only once.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr(metrics, "_METER_PROVIDER", None)
    monkeypatch.setattr(metrics, "_METER_PROVIDER_SET_ONCE", Once())
    monkeypatch.chdir(folder)
    # An example's page imports what stands beside it.
    monkeypatch.syspath_prepend(str(page.parent))
    monkeypatch.syspath_prepend(str(folder))
    there = [
        Path(block.file).stem for block in pages.blocks(page, "python") if block.file is not None
    ]
    kept = {module: sys.modules.pop(module) for module in there if module in sys.modules}
    try:
        yield
    finally:
        for module in there:
            sys.modules.pop(module, None)
        sys.modules.update(kept)


def run_code(page: Path) -> ModuleType:
    """A module of the page's Python blocks, one after the other; those that are files of their own
    are imported.
    """
    module = ModuleType(f"code_of_{page.stem.replace('-', '_')}")
    # Dataclasses and annotations are looked up there.
    sys.modules[module.__name__] = module
    for block in pages.blocks(page, "python"):
        if block.file is None:
            source = Path(
                block.where
            )  # in the test's folder: tracebacks show it, and FastStream reads that of its tests
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(block.text)
            exec(compile(block.text, block.where, "exec", dont_inherit=True), module.__dict__)
        elif "asyncio.run(main())" not in block.text:
            # A script that connects when it is imported.
            vars(module).update(vars(import_module(Path(block.file).stem)))
    return module


def apps_of(module: ModuleType) -> list[App]:
    return list(
        {id(value): value for value in vars(module).values() if isinstance(value, App)}.values()
    )


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with laid_out(page, tmp_path, monkeypatch):
        module = run_code(page)
        for app in apps_of(module):
            # Every handler fits the page's configuration.
            app.configure()
        tests = [test for its_name, test in vars(module).items() if its_name.startswith("test_")]
        for test in tests:
            if "virtual_time" in [mark.name for mark in getattr(test, "pytestmark", ())]:
                run_in_virtual_time(lambda clock, test=test: test())
            elif inspect.iscoroutinefunction(test):
                asyncio.run(test())
            else:
                test()
        assert apps_of(module), "no application to check"


@pytest.mark.parametrize(
    "block",
    [block for page in PAGES for block in pages.blocks(page, "toml")],
    ids=lambda block: block.where,
)
def test_every_toml_block_is_a_whole_configuration(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "reactive-kafka.toml"
    file.write_text(block.text)
    settings = read_settings(file, environ={}).checked()
    assert settings.incoming or settings.topics


ORDER = {"id": 1, "customer": "ada", "total": 2.5}


async def test_every_handler_of_the_page_about_handlers_settles_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with laid_out(pages.page("docs/handlers.md"), tmp_path, monkeypatch):
        module = run_code(pages.page("docs/handlers.md"))
        app: App = module.app
        handled = [
            channel for channel, consuming in app.plan.incoming.items() if consuming.handlers
        ]
        async with TestApp(app) as test:
            for channel in handled:
                await test.send(channel, ORDER)
            await test.settled()
            assert {
                channel: sum(test.committed(channel).values()) for channel in handled
            } == dict.fromkeys(handled, 1)
            assert [record.key for record in test.records("invoices")] == [b"ada"]

            iterating = asyncio.ensure_future(module.consume(app))
            async with asyncio.timeout(5):
                while not app.channel("audit").is_ready:  # noqa: ASYNC110 - nobody sets an event for that
                    await asyncio.sleep(0.01)
            await test.send("audit", b"seen")
            await test.settled()
        await asyncio.wait_for(iterating, 5)
    assert len(handled) > 6


@pytest.mark.spark
# Pyspark leaves those of collect() open.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
async def test_the_spark_function_of_the_page_about_spark_counts_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as parquet

    with laid_out(pages.page("docs/spark.md"), tmp_path, monkeypatch):
        app: App = run_code(pages.page("docs/spark.md")).app
        quick = {
            "incoming": {"clicks": {"spark": {"batch_max_wait": "100ms"}}},
            "spark": {"master": "local[2]"},
        }
        async with TestApp(app, overrides=quick) as test:
            for click in (
                {"page": "home"},
                {"page": "cart", "seconds": 2},
                {"page": "home"},
                {"page": "home", "seconds": -1},
            ):
                await test.send("clicks", click, partition=0)
            await test.send("clicks", b"no click", partition=0)
            await test.settled(timeout=90)
            assert test.committed("clicks")[TopicPartition("clicks", 0)] == 5
            dead = [record.value for record in test.records("dead-letter-topic-clicks")]
    assert sorted(dead) == [b"no click", b'{"page":"home","seconds":-1}']
    rows = parquet.read_table(tmp_path / "pages").to_pylist()
    assert {
        path: sum(row["count"] for row in rows if row["page"] == path) for path in ("home", "cart")
    } == {
        "home": 2,
        "cart": 1,
    }


# -- the five lines


def test_the_five_lines_of_the_quickstart_are_the_example() -> None:
    example = ROOT / "examples" / "hello"
    quickstart = pages.page("docs/quickstart.md")
    shown = {block.file: block.text for block in pages.blocks(quickstart) if block.file}
    assert shown["hello.py"] == (example / "hello.py").read_text()
    assert shown["reactive-kafka.toml"] == (example / "reactive-kafka.toml").read_text()


async def until_ready(port: int) -> None:
    """Wait until the service on this port is ready."""
    async with asyncio.timeout(30), httpx.AsyncClient() as client:
        while True:
            try:
                answer = await client.get(f"http://127.0.0.1:{port}/health/ready")
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code == 200:
                return
            await asyncio.sleep(0.1)


# -- keys and values


STORED = {"commit_strategy": "checkpoint"}


def outcome(key: str, value: Any) -> str:
    """``"fine"``, ``"later"``, or the problems of a key wherever it may stand."""
    nested = _nested(key, value)
    places: list[dict[str, Any]] = [
        {"incoming": {"x": {"group_id": "g", "commit_strategy": "ignore", **nested}}},
        {"incoming": {"x": {"group_id": "g", "retry": nested}}},
        {"incoming": {"x": {"group_id": "g", "spark": nested}}},
        {"incoming": {"x": {"group_id": "g", "schema": nested}}},
        {
            "incoming": {
                "x": {
                    "group_id": "g",
                    **STORED,
                    "checkpoint": {"store": "sqlite:///x.db", **nested},
                }
            }
        },
        {"outgoing": {"x": nested}},
        {"topics": {"x": nested}},
        *({section: nested} for section in PLAIN_SECTIONS),
    ]
    problems = [_problem(tables) for tables in places]
    if any(problem is None or "there is no such file" in problem for problem in problems):
        return "fine"
    return "\n".join(filter(None, problems))


def _nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def _problem(tables: dict[str, Any]) -> str | None:
    try:
        read_settings(tables, environ={}).checked()
    except ConfigError as error:
        return str(error)
    return None


OF_LIBRDKAFKA = ("fetch.queue.backoff.ms",)
"""Settings of a peer, beside which we are measured."""

SETTINGS = [
    span
    for page in PAGES
    for span in pages.spans(page)
    if SETTING.fullmatch(span.text) and not span.text.startswith(OF_LIBRDKAFKA)
]


@pytest.mark.parametrize("span", SETTINGS, ids=lambda span: span.where)
def test_every_setting_in_the_text_is_accepted(span: Span) -> None:
    match = SETTING.fullmatch(span.text)
    assert match is not None
    value = tomllib.loads(f"value = {match[2]}")["value"]
    assert outcome(match[1], value) == "fine"


def test_a_setting_that_is_wrong_would_be_found() -> None:
    assert "unknown key" in outcome("comit_interval", "5s")
    assert outcome("commit_interval", "5s") == "fine"


# -- which strategy when


DECISIONS = (
    "commit_strategy",
    "enable_auto_commit",
    "failure_strategy",
    "ordering",
    "consumers",
    "retry",
    "restart",
)


def rows_of_choosing() -> dict[str, list[str]]:
    """The table of the page: channel -> its other cells."""
    lines = _section("docs/choosing.md", "What can be lost or repeated").splitlines()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("| ")
    ]
    return {name: cells for name, *cells in rows[1:]}


def is_within(part: dict[str, Any], whole: dict[str, Any]) -> bool:
    """Whether *whole* says all that *part* says, in its tables too."""
    return all(
        is_within(value, whole.get(key, {})) if isinstance(value, dict) else whole.get(key) == value
        for key, value in part.items()
    )


def test_each_row_about_strategies_is_a_channel_that_goes_through_every_fault() -> None:
    assert rows_of_choosing().keys() == STRATEGIES.keys()


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_row_about_strategies_says_what_its_channel_is_and_promises(strategy: Strategy) -> None:
    settings, lost, *_, order, _ = rows_of_choosing()[strategy.name]
    table = tomllib.loads(strategy.toml("run"))["incoming"][strategy.name]
    said = tomllib.loads("\n".join(re.findall(r"`([^`]+)`", settings)))
    assert is_within(said, table)
    assert said.keys() == {key for key in DECISIONS if key in table}
    loses_nothing = strategy.safe and strategy.commits and ("failed" not in strategy.settles)
    assert lost.startswith("nothing") == loses_nothing
    assert order.startswith("per key") == strategy.by_key
    assert not (order == "none" and strategy.ordered)
    assert bool(strategy.retry_topics("run")) == ("out of order" in order)


# -- names


@cache
def vocabulary() -> frozenset[str]:
    """Every word of the code, of the tests, and of what is configured."""
    folders = ("reactive_kafka", "tests", "examples", "benchmarks")
    sources = [
        *(path for folder in folders for path in (ROOT / folder).rglob("*.py")),
        *(ROOT / file for file in ("Makefile", "pyproject.toml", ".ci/run")),
    ]
    here = {Path(__file__), Path(pages.__file__)}
    words = {
        word
        for path in sources
        if path not in here
        for word in re.findall(r"\w+", path.read_text())
    }
    properties = {
        spelling
        for known in PROPERTIES
        for spelling in (known.name, known.kafka, *known.also)
        if spelling
    }
    return frozenset(
        words | properties | {part for one in properties for part in re.split(r"\W", one)}
    )


def names_in(span: Span) -> Iterable[str]:
    """The words of a span that can only be names: with an underscore inside, in CamelCase, or
    called.
    """
    # Looked at elsewhere.
    text = re.sub(r"reactive_kafka_\w+|REACTIVE_KAFKA_\w+|tests/\S+|\S+\.py", "", span.text)
    yield from re.findall(r"\b[a-zA-Z]+(?:_[a-zA-Z0-9]+)+\b", text)
    yield from re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", text)
    yield from re.findall(r"\b(\w+)\(", text)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_name_in_the_text_is_one_of_the_code(page: Path) -> None:
    unknown = {
        word: span.where
        for span in pages.spans(page)
        for word in names_in(span)
        if word not in vocabulary()
    }
    assert unknown == {}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_metric_in_the_text_is_in_the_catalogue(page: Path) -> None:
    catalogue = (*CATALOGUE, *OF_A_SUPERVISOR)
    metrics = {metric.name.removeprefix("reactive_kafka_") for metric in catalogue}
    # Prometheus makes three series of a histogram.
    metrics |= {
        f"{metric.name.removeprefix('reactive_kafka_')}_{series}"
        for metric in catalogue
        if metric.kind == "histogram"
        for series in ("bucket", "sum", "count")
    }
    # Tables, and an index.
    metrics |= {"checkpoints", "outbox", "outbox_order"}
    named = set(re.findall(r"\breactive_kafka_(\w+)", page.read_text()))
    assert named <= metrics


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_dotted_name_of_the_package_leads_somewhere(page: Path) -> None:
    for span in pages.spans(page):
        if match := re.fullmatch(r"((?:reactive_kafka|App)(?:\.\w+)+)(?:\(.*\))?", span.text):
            assert resolve(match[1]) is not None or match[1] in {*loggers(), *OWN}, span.where


@cache
def loggers() -> set[str]:
    """The names under which the package logs: users configure them, and they do not move with the
    files.
    """
    sources = (path.read_text() for path in (ROOT / "reactive_kafka").rglob("*.py"))
    return {name for source in sources for name in re.findall(r'getLogger\("([\w.]+)"\)', source)}


def resolve(dotted: str) -> Any:
    """The object of a dotted name, None where there is none."""
    parts = dotted.split(".")
    if parts[0] == "App":
        parts.insert(0, "reactive_kafka")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part, None)
        return found
    return None


# -- files, links, tests, commands


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target in pages.links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), f"{name(page)} links to {target}"
        assert not anchor or anchor in pages.anchors(file), f"{name(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_in_the_text_exists(page: Path) -> None:
    roots = (page.parent, ROOT, ROOT / "reactive_kafka")
    for span in pages.spans(page):
        path = span.text.partition("::")[0]
        if re.fullmatch(r"[\w*-][\w.*-]*(/[\w.*-]*)+", path):
            assert any(list(root.glob(path.rstrip("/"))) for root in roots), span.where


def defined_in(path: Path) -> set[str]:
    """What a test file defines at its top, and in its classes as ``Class::name``."""
    tree = ast.parse(path.read_text())
    found = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in _names(node.targets)
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{getattr(inner, 'name', '')}" for inner in node.body}
    return found


def _names(targets: list[ast.expr]) -> Iterator[ast.Name]:
    yield from (target for target in targets if isinstance(target, ast.Name))


def named_tests(text: str) -> list[tuple[str, str]]:
    """path and name of each test that is named."""
    return re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", text)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_test_in_the_text_exists(page: Path) -> None:
    missing = [
        f"{path}::{test}"
        for path, test in named_tests(page.read_text())
        if not (ROOT / path).exists() or test not in defined_in(ROOT / path)
    ]
    assert missing == []


def test_every_trap_of_the_client_has_tests_that_show_it_and_that_hold_it() -> None:
    traps = re.findall(r"^\| (H\d+) \|", pages.page("docs/internals.md").read_text(), re.MULTILINE)
    files = (ROOT / "tests" / "broker" / "hazards").glob("test_*.py")
    tests = {test for file in files for test in defined_in(file)}
    shown = {match[1].upper() for test in tests if (match := re.match(r"test_(h\d+)_naive_", test))}
    held = {
        match[1].upper() for test in tests if (match := re.match(r"test_(h\d+)_(?!naive_)", test))
    }
    assert sorted(traps, key=lambda trap: int(trap[1:])) == traps
    assert set(traps) == shown
    assert set(traps) - held == set()


def test_every_promise_names_a_test() -> None:
    rows = re.findall(
        r"^\| (.+?) \| (.*) \|$", pages.page("docs/promises.md").read_text(), re.MULTILINE
    )
    promises = [row for row in rows if row[0] not in ("promise", "---")]
    without = [promise for promise, held_by in promises if not named_tests(held_by)]
    assert without == []
    assert len(promises) > 15


def _section(page: str, heading: str) -> str:
    return pages.page(page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_in_the_text_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shells = [block.text for block in pages.blocks(page) if block.language in ("console", "")]
    for text in [*(span.text for span in pages.spans(page)), *"\n".join(shells).splitlines()]:
        if make := re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*make ([a-z-]+)", text):
            assert make[1] in targets, text
        if ours := re.search(r"(?:^|\$ )reactive-kafka (\w+)(.*)", text):
            assert ours[1] in MODULES, text
            command = getattr(import_module(MODULES[ours[1]]), ours[1])
            # The URL of a service comes before the action of `control`.
            inner = re.match(r" (?:https?://\S+ )?([\w-]+)", ours[2])
            if inner and isinstance(command, click.Group):
                assert inner[1] in command.commands, text
                command = command.commands[inner[1]]
            options = {option for parameter in command.params for option in parameter.opts}
            assert set(re.findall(r"(?<!\S)--[a-z-]+", ours[2].partition("#")[0])) <= options | {
                "--help"
            }, text


@pytest.mark.parametrize("key", ["commit_strategy", "failure_strategy"])
def test_the_glossary_names_every_strategy(key: str) -> None:
    start = f"| **{key.replace('_', ' ')}** |"
    (row,) = [
        line
        for line in (ROOT / "docs" / "glossary.md").read_text().splitlines()
        if line.startswith(start)
    ]
    assert re.findall(r"`([a-z-]+)`", row) == re.findall(
        r'"([a-z-]+)"', INCOMING.keys[key].kind.expects
    )
