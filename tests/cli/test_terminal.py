"""What commands do on a terminal only: progress, a pager, colours."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.cli.console_text import progress_text, waiting_text
from tests.cli.process import environment


def on_terminal(code: str, extra: Mapping[str, str] | None = None, lines: int = 24) -> str:
    """What a terminal shows of a Python program."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (lines, 80))
    shown = b""
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            # The size is that of the terminal, not that of variables.
            env=environment({"TERM": "xterm", "LINES": "", "COLUMNS": "", **(extra or {})}),
        )
        os.close(theirs)
        while True:
            try:
                some = os.read(ours, 65_536)
            except OSError:
                # Linux reports the end of a terminal like this.
                break
            if not some:
                break
            shown += some
        assert process.wait(30) == 0, shown
    finally:
        os.close(ours)
    return shown.decode().replace("\r\n", "\n")


def off_terminal(code: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=True,
    )
    return done.stdout, done.stderr


PROGRESS = """
import threading
from reactive_kafka.cli import progress
progress.FIRST_AFTER_S = progress.ON_TERMINAL_S = progress.IN_LOG_S = 0.001
asked = threading.Event()
def done():
    asked.set()
    return 5
with progress.progress_line("replayed", done, 10):
    assert asked.wait(20)
print("end")
"""


def test_progress_is_one_line_of_a_terminal_and_is_erased() -> None:
    *shown, last = on_terminal(PROGRESS).split("\r\x1b[K")
    assert "5 of 10 records replayed" in shown[1]
    assert last == "end\n"


def test_progress_elsewhere_is_lines_on_stderr() -> None:
    out, err = off_terminal(PROGRESS)
    assert out == "end\n"
    assert err.startswith("5 of 10 records replayed")
    assert "\x1b" not in err


def test_a_quick_command_shows_no_progress() -> None:
    quick = """
from reactive_kafka.cli import progress
with progress.waiting_line("asking the brokers"):
    pass
"""
    assert on_terminal(quick) == ""
    assert off_terminal(quick) == ("", "")


@given(st.integers(0, 10**6), st.none() | st.integers(0, 10**6), st.floats(0, 10**6))
def test_a_line_of_progress_can_be_written_at_any_time(
    done: int, total: int | None, elapsed_s: float
) -> None:
    assert "\n" not in progress_text("records read", done, total, elapsed_s)


def test_progress_says_the_rate_and_what_is_left() -> None:
    text = progress_text("records replayed", 1500, 9000, 5.0)
    assert text == "1500 of 9000 records replayed, 300 a second, 25s to go"
    assert progress_text("groups read", 3, None, 1.0) == "3 groups read, 3 a second"
    assert waiting_text("asking the brokers", 3.2) == "asking the brokers, 3s"


PAGES = """
from reactive_kafka.cli.paging import show_lines
show_lines([f"line {number}" for number in range(10)])
"""


@pytest.mark.parametrize(("height", "is_paged"), [(5, True), (24, False)])
def test_lines_that_do_not_fit_a_terminal_go_to_the_pager(
    height: int, is_paged: bool, tmp_path: Path
) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\nsed 's/^/paged: /'\n")
    pager.chmod(0o755)
    shown = on_terminal(PAGES, {"PAGER": str(pager)}, height)
    assert shown.startswith("paged: line 0\n" if is_paged else "line 0\n")
    assert shown.count("line") == 10


def test_nothing_is_paged_in_a_pipe() -> None:
    assert off_terminal(PAGES)[0].splitlines() == [f"line {number}" for number in range(10)]


COLOURS = """
from reactive_kafka.cli.paging import coloured, echo_table
echo_table(["head", "row"])
print(coloured("refused", "red"))
"""
PLAIN = "head\nrow\nrefused\n"


def test_a_terminal_gets_colours() -> None:
    shown = on_terminal(COLOURS)
    assert shown == "\x1b[1mhead\x1b[0m\nrow\n\x1b[31mrefused\x1b[0m\n"


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_no_colours_gets_none(variables: dict[str, str]) -> None:
    assert on_terminal(COLOURS, variables) == PLAIN


def test_a_pipe_gets_no_colours() -> None:
    assert off_terminal(COLOURS)[0] == PLAIN
