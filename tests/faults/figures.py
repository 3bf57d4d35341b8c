"""What long runs leave behind: their figures on the screen, in a file and in the docs; and how they
are ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.faults.checker import Violation, report

T = TypeVar("T")
Summary = Mapping[str, Any]


def table(summary: Summary) -> str:
    """The figures as Markdown; a figure of figures is a line, and a list is left out."""
    rows = [
        f"| {name} | {_shown(value)} |"
        for name, value in summary.items()
        if not isinstance(value, list)
    ]
    return "\n".join(["| | |", "|---|---|", *rows])


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items())
    return (
        f"{value:,}"
        if isinstance(value, int | float) and not isinstance(value, bool)
        else str(value)
    )


def written(page: str, name: str, text: str) -> str:
    """The page with *text* between the markers of that name."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    assert before != page, f"the page has no {begin}"
    return f"{before}{begin}\n{text}\n{end}{after}"


def told(
    name: str, summary: Summary, violations: Sequence[Violation], options: argparse.Namespace
) -> int:
    """Print what a run came to, write it where that was asked for, and return the exit code."""
    print(table(summary))
    print(report(violations))
    if options.write:
        options.write.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    if options.docs:
        page = options.docs.read_text(encoding="utf-8")
        options.docs.write_text(written(page, name, table(summary)), encoding="utf-8")
    return 1 if violations else 0


def parser(about: str | None) -> argparse.ArgumentParser:
    """The options of every long run."""
    made = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    made.add_argument("--write", type=Path, help="write the figures there, as JSON")
    made.add_argument(
        "--docs", type=Path, help="write the figures into that page, between its markers"
    )
    made.add_argument(
        "--keep", type=Path, help="a folder for histories and logs, which are deleted otherwise"
    )
    return made


async def until_told(work: Coroutine[Any, Any, T]) -> T:
    """Do the work; SIGTERM cancels it, as Ctrl-C does, so that it takes everything with it that it
    has started.
    """
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task
