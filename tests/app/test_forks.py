"""A handler that forks: the child is a copy of everything, and may do nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

APPLICATION = """
import asyncio, os, sys
from multiprocessing import get_context
from reactive_kafka import App
from reactive_kafka.testing import TestApp

how, written = sys.argv[1:3]
app = App({"incoming": {"orders": {"group_id": "billing", "value_deserializer": "string"}}})

def note(what):
    with open(written, "a") as file:
        file.write(f"{what} {os.getpid()}\\n")

def child():
    note("target")

@app.incoming("orders")
async def handle(number: str) -> None:
    note(number)
    if number == "2":
        if how == "multiprocessing":
            process = get_context("fork").Process(target=child)
            process.start()
            process.join()
            note(f"child ended with {process.exitcode}")
        elif pid := os.fork():
            note(f"child ended with {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")
        elif how == "exits":
            sys.exit(0)
        elif how == "raises":
            raise ValueError("in the child")

async def main():
    async with TestApp(app) as test:
        for number in range(6):
            await test.send("orders", b"%d" % number, partition=0)
        await test.settled()
        note(f"committed {sum(test.committed('orders').values())}")

LOOP
"""
LOOPS = {
    "asyncio": "asyncio.run(main())",
    "uvloop": "import uvloop; asyncio.Runner(loop_factory=uvloop.new_event_loop).run(main())",
}


def played(tmp_path: Path, how: str, loop: str) -> tuple[list[str], list[str], str]:
    """What the parent did, what its child did, and what was said on standard error."""
    written = tmp_path / "written"
    with subprocess.Popen(
        [sys.executable, "-c", APPLICATION.replace("LOOP", LOOPS[loop]), how, str(written)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent)},
        start_new_session=True,
    ) as process:
        try:
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 0, said
    lines = [line.rsplit(" ", 1) for line in written.read_text().splitlines()]
    return (
        [what for what, pid in lines if int(pid) == process.pid],
        [what for what, pid in lines if int(pid) != process.pid],
        said,
    )


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("how", ["returns", "raises", "exits"])
def test_a_child_that_comes_back_to_the_loop_ends_and_handles_and_commits_nothing(
    tmp_path: Path, how: str, loop: str
) -> None:
    """Row D11 of the faults."""
    parent, child, said = played(tmp_path, how, loop)
    assert parent == ["0", "1", "2", "child ended with 1", "3", "4", "5", "committed 6"]
    assert child == []
    assert said.count("was forked from") == 1


def test_a_child_of_multiprocessing_runs_what_it_was_made_for(tmp_path: Path) -> None:
    parent, child, said = played(tmp_path, "multiprocessing", "asyncio")
    assert parent == ["0", "1", "2", "child ended with 0", "3", "4", "5", "committed 6"]
    assert child == ["target"]
    assert "was forked from" not in said
