"""What Python itself costs: ``python -m benchmarks.floor`` times single operations on each Python
that it finds.

With how often our loop does each of them for a record (``RecordRunner.run`` in order, and the reader
before it) they add up to a floor, and the loop itself is timed beside it. A second table has what
decoding JSON takes. ``--json`` prints the figures of the one Python that runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import sysconfig
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import decoding

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
UNROLLED = 10
LOOPS = 10_000
RUNS = 5
RECORDS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One of the things that code does.

    Args:
        name: What the table calls it.
        code: A statement, which stands ten times in a loop.
        setup: What it needs, run once before.
        with_message: How often our loop does it for a record whose handler takes a ``Message``.
        with_bytes: The same for a handler of the payload.
    """

    name: str
    code: str
    setup: str = ""
    with_message: int = 0
    with_bytes: int = 0


SLOTS = """
class Small:
    __slots__ = ("a", "b", "c", "d", "e", "f", "g")
small, value = Small(), object()
small.a = 1
"""
COROUTINE = """
async def noop(given):
    pass
"""
TASK = """
import asyncio, contextvars
task = asyncio.current_task()
context = contextvars.copy_context()
clean = contextvars.copy_context()
"""
CLIENTS_RECORD = """
from dataclasses import dataclass
@dataclass(frozen=True)
class Record:
    a: int; b: int; c: int; d: int; e: int; f: int; g: int; h: int; i: int; j: int; k: int
"""

CREATE = "an object with slots"
STORE = "an attribute of such an object stored"
LOAD = "an attribute of such an object read"
CALL = "a function call"
AWAIT = "a coroutine created and awaited"
C_METHOD = "a method of a compiled type called: `task.cancelling()`"
COMPARE = "`context == context`"
CLOCK = "a look at the clock: `time.monotonic()`"
TEST = "a test of a local, and a branch"
STEP = "a step of `for` over `enumerate`"
DEQUE = "`append` and `popleft` of a deque"
FIELDS = "a frozen dataclass of 11 fields, as the client makes for each record"
PARSE = "a record out of a compiled batch, its value and headers read"

OPERATIONS = (
    Operation(name=STEP, code="", with_message=1, with_bytes=1),
    Operation(name=CREATE, code="Small()", setup=SLOTS, with_message=1),
    Operation(name=STORE, code="small.a = value", setup=SLOTS, with_message=7, with_bytes=3),
    Operation(name=AWAIT, code="await noop(number)", setup=COROUTINE, with_message=1, with_bytes=1),
    Operation(name=C_METHOD, code="task.cancelling()", setup=TASK, with_message=1, with_bytes=1),
    Operation(
        name=CLOCK,
        code="clock()",
        setup="from time import monotonic as clock",
        with_message=1,
        with_bytes=1,
    ),
    Operation(name=TEST, code="if number is None:\n    number = 1", with_message=8, with_bytes=8),
    Operation(name=LOAD, code="small.a", setup=SLOTS, with_message=1, with_bytes=1),
    Operation(name=COMPARE, code="context == clean", setup=TASK, with_message=1, with_bytes=1),
    Operation(name=CALL, code="call(number)", setup="def call(given):\n    pass"),
    Operation(
        name=DEQUE,
        code="queue.append(number); queue.popleft()",
        setup="from collections import deque\nqueue = deque()",
    ),
    Operation(name=FIELDS, code="Record(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)", setup=CLIENTS_RECORD),
)
NAMES = (*(one.name for one in OPERATIONS), PARSE)
LOOP_MESSAGE = "our loop with `Message`"
LOOP_BYTES = "our loop with `bytes`"


def floor(ns: Mapping[str, float], *, with_message: bool) -> float:
    """What the operations of our loop take for a record, in nanoseconds, without the record's own
    parsing.
    """
    return sum(
        ns[one.name] * (one.with_message if with_message else one.with_bytes) for one in OPERATIONS
    )


# -- one Python


async def timed(operation: Operation) -> float:
    """Nanoseconds that it takes, of the best of some runs; the loop around it aside."""
    empty = await _best("", "pass")
    if not operation.code:
        return empty
    return max(await _best(operation.setup, operation.code) - empty, 0.0) / UNROLLED


async def _best(setup: str, code: str) -> float:
    # In a function's locals, as our loop has them.
    lines = [
        "async def run(turns, clock_of_the_cpu):",
        textwrap.indent(setup.strip() or "pass", "    "),
        "    began = clock_of_the_cpu()",
        "    for number, _ in enumerate(turns):",
        textwrap.indent("\n".join([code] * UNROLLED), "        "),
        "    return clock_of_the_cpu() - began",
    ]
    found: dict[str, Any] = {}
    exec("\n".join(lines), found)
    turns = [None] * LOOPS
    took: list[float] = [await found["run"](turns, time.process_time) for _ in range(RUNS)]
    return min(took) / LOOPS * 1e9


def parsed() -> float | None:
    """Nanoseconds to iterate a compiled batch, with two attributes of each record; None without
    aiokafka.
    """
    try:
        from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
    except ImportError:
        return None
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, 0, 1 << 20)
    for offset in range(RECORDS):
        builder.append(offset, 0, None, b"." * 100, [])
    content = bytes(builder.build())
    took = []
    for _ in range(RUNS * 10):
        began = time.process_time()
        batch = DefaultRecordBatch(content)
        batch.validate_crc()
        for record in [*batch]:
            record.headers  # noqa: B018 - reading them is what is timed
            record.value  # noqa: B018
        took.append(time.process_time() - began)
    return min(took) / RECORDS * 1e9


def loops() -> dict[str, float]:
    """Nanoseconds that our own loop takes a record, without a broker; nothing without our
    packages.
    """
    try:
        from benchmarks import micro
    except ImportError:
        return {}
    cases = ((LOOP_MESSAGE, micro.dispatch_messages), (LOOP_BYTES, micro.dispatch_payloads))
    return {name: round(_cpu_ns(case) / micro.RECORDS, 1) for name, case in cases}


def _cpu_ns(case: Callable[[], None]) -> float:
    """Of the best of some runs, whoever else uses the machine."""
    took = []
    for _ in range(RUNS):
        began = time.process_time()
        case()
        took.append(time.process_time() - began)
    return min(took) * 1e9


async def _operations() -> dict[str, float]:
    return {one.name: round(await timed(one), 1) for one in OPERATIONS}


def measured() -> dict[str, Any]:
    """All of it, for the Python that runs this."""
    figures = asyncio.run(_operations())
    if (record := parsed()) is not None:
        figures[PARSE] = round(record, 1)
    return {"python": name(), "ns": {**figures, **loops()}, "decoding": decoding.taken()}


def name() -> str:
    """Such as ``3.11.2, optimised``: whether a profile of its own runs has guided its compiler."""
    configured = sysconfig.get_config_var("CONFIG_ARGS") or ""
    # Debian's rules build with a profile and do not say so in the configuration.
    is_optimised = (
        "--enable-optimizations" in configured or "deb_system" in sysconfig.get_scheme_names()
    )
    return f"{platform.python_version()}, {'optimised' if is_optimised else 'plain'}"


# -- each Python


def pythons() -> list[Path]:
    """Those of this repository's environments, of the path and of pyenv; several of them may be the
    same one.
    """
    places = [
        *sorted(ROOT.glob(".venv*/bin")),
        *map(Path, os.environ.get("PATH", "").split(os.pathsep)),
    ]
    places += [Path("/usr/bin"), *sorted(Path.home().glob(".pyenv/versions/*/bin"))]
    found = [place / "python" for place in places if (place / "python").exists()]
    for place in places:
        found += sorted(
            one
            for one in place.glob("python3.[0-9]*")
            if one.name.removeprefix("python3.").isdigit()
        )
    return list(dict.fromkeys(found))


def ask(python: Path, *words: str) -> str:
    """What it prints, with this folder's modules and, where it is of the same version, our
    environment's packages.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = ROOT / ".venv" / "lib" / version / "site-packages"
    path = str(packages) if version in python.resolve().name else ""
    done = subprocess.run(
        [python, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def distinct(candidates: Iterable[Path]) -> list[Path]:
    """One of each version and build, those with our packages first; oldest first."""
    kept: dict[tuple[tuple[int, ...], str], Path] = {}
    question = (
        "import sys, json, importlib.util as u; from benchmarks.floor import name; "
        "print(json.dumps([sys.version_info[:3], name(), u.find_spec('aiokafka') is not None])) "
        f"if sys.version_info >= {OLDEST} else print('null')"
    )
    has_packages: set[Path] = set()
    for python in candidates:
        try:
            answer = json.loads(ask(python, "-c", question))
        except (subprocess.CalledProcessError, OSError, ValueError):
            # An older one, which cannot even read this module, or a broken one.
            continue
        if answer is None:
            continue
        version, build, has = answer
        key = tuple(version), build
        if has:
            has_packages.add(python)
        if key not in kept or (has and kept[key] not in has_packages):
            kept[key] = python
    return [kept[key] for key in sorted(kept)]


def everywhere() -> list[dict[str, Any]]:
    """The figures of each Python."""
    return [
        json.loads(ask(python, "-m", "benchmarks.floor", "--json"))
        for python in distinct(pythons())
    ]


def table(figures: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a row an operation, a column a Python; then their sum for a record, beside our
    loop.
    """
    counts = {one.name: (one.with_message, one.with_bytes) for one in OPERATIONS} | {PARSE: (1, 1)}
    lines = [
        f"| ns | {' | '.join(one['python'] for one in figures)} | a record, `Message` | a record, `bytes` |",
        f"|---|{'---:|' * (len(figures) + 2)}",
    ]
    for row in NAMES:
        times = " | ".join(str(count) if count else "" for count in counts[row])
        lines.append(
            f"| {row} | {' | '.join(_cell(one['ns'].get(row)) for one in figures)} | {times} |"
        )
    for is_message, what in ((True, "Message"), (False, "bytes")):
        floors = [floor(one["ns"], with_message=is_message) for one in figures]
        whole = [one["ns"].get(LOOP_MESSAGE if is_message else LOOP_BYTES) for one in figures]
        shares = [
            f"{low / all_:.0%}" if all_ else "-" for low, all_ in zip(floors, whole, strict=True)
        ]
        lines.append(
            f"| **sum for `{what}`, without the batch** | {' | '.join(map(_cell, floors))} | | |"
        )
        lines.append(f"| our loop with `{what}`, timed | {' | '.join(map(_cell, whole))} | | |")
        lines.append(f"| the sum's share of it | {' | '.join(shares)} | | |")
    return "\n".join(lines)


def _cell(ns: float | None) -> str:
    return "-" if ns is None else f"{ns:.0f}" if ns >= 100 else f"{ns:.1f}"


def main() -> None:
    """Print the table, or with ``--json`` what this Python takes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="only of the Python that runs this")
    if parser.parse_args().json:
        print(json.dumps(measured()))
    else:
        found = everywhere()
        print(table(found), decoding.table(found), sep="\n\n")


if __name__ == "__main__":
    main()
