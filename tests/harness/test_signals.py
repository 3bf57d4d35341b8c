"""Signals that the run of the tests ignores are not ignored by the processes that tests start."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import pytest

from tests.pages import ROOT

NAMES = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGPIPE")
CHILD = ("sh", "-c", "grep SigIgn /proc/self/status")


def ignored_of(status: bytes) -> list[str]:
    """The signals that a process ignores, of a line of its ``/proc/self/status``."""
    ignored = int(status.split()[1], 16)
    return [name for name in NAMES if ignored >> (getattr(signal, name) - 1) & 1]


def test_a_child_ignores_no_signal() -> None:
    assert ignored_of(subprocess.run(CHILD, stdout=subprocess.PIPE, check=True).stdout) == []


async def test_a_child_of_asyncio_ignores_no_signal() -> None:
    child = await asyncio.create_subprocess_exec(*CHILD, stdout=subprocess.PIPE)
    said, _ = await child.communicate()
    assert ignored_of(said) == []


@pytest.mark.parametrize("how", ["nohup", "trap '' HUP INT QUIT TERM PIPE;"])
def test_that_holds_in_a_run_that_ignores_them(how: str) -> None:
    command = f'{how} "$0" -m pytest -q -p no:cacheprovider -k ignores_no_signal "$1"'
    run = ["sh", "-c", command, sys.executable, __file__]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
