"""Bars of Spark batches in the terminal of ``run``: never through a log line, and none without a
terminal.
"""

from __future__ import annotations

import codecs
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from fcntl import ioctl
from pathlib import Path

import pytest
from rich.console import Console

from examples.demo.screen import channel_lines
from reactive_kafka import App
from reactive_kafka.cli.spark_progress import Bottom, bars, bottom_of_the_terminal, drawn
from tests.cli.process import COMMAND, environment
from tests.harness.terminal import Terminal
from tests.http.applike import FactsApp
from tests.observe.samples import app, batch, channel, spark

BAR = re.compile(
    r"clicks 7f3a +.* 50000 records, stage 1/2, tasks \d+/8 \(2 running, 0 failed\), .*"
)
SERVICE = """\
import asyncio, logging, os, threading, time
from reactive_kafka import App
from reactive_kafka.handlers.blocking_calls import as_async
from tests.http.applike import FactsApp
from tests.observe.samples import batch, spark

log = logging.getLogger("shop")
at_import = logging.getLogger("at_import")
at_import.addHandler(logging.StreamHandler())  # keeps the stream of this moment
at_import.propagate = False


class Shop(App):
    done = 0
    is_over = False

    def spark_facts(self):
        return () if self.is_over else (spark(running=(batch(tasks_done=self.done),)),)


app = Shop({"http": {"enabled": False}})


def in_a_thread():
    for number in range(300):
        print(f"printed {number}", flush=True)


@app.on_start
async def work() -> None:
    asyncio.ensure_future(run())


async def run():
    await asyncio.sleep(0.1)
    if "STUCK" in os.environ:
        await as_async(time.sleep)(60)
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    for number in range(300):
        log.warning("logged %d", number)
        at_import.warning("kept %d", number)
        app.done = number * 8 // 300
        await asyncio.sleep(0.003)
    thread.join()
    print("no line end yet", end="", flush=True)
    await asyncio.sleep(0.6)
    app.is_over = True
    await asyncio.sleep(0.6)
    print(", and now one")
    print("over")
"""


class OnTerminal:
    """A command whose stdout and stderr are a pseudo terminal; what it has written so far is
    kept.
    """

    def __init__(self, process: subprocess.Popen[bytes], leader: int) -> None:
        self.process = process
        self._leader = leader
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self.text = ""

    def read_until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Read until *condition*, or the command's end."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, self.text
            try:
                piece = os.read(self._leader, 65536)
            except OSError:
                # Nobody has the other end any more.
                return
            self.text += self._decode(piece)


@contextmanager
def on_terminal(
    *command: str, cwd: Path, env: Mapping[str, str] | None = None, columns: int = 120
) -> Iterator[OnTerminal]:
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    own = {"TERM": "xterm", "PYTHONPATH": str(Path(__file__).parents[2])} | dict(env or {})
    process = subprocess.Popen(
        command, cwd=cwd, env=environment(own), stdout=follower, stderr=follower
    )
    os.close(follower)
    try:
        yield OnTerminal(process, leader)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        os.close(leader)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "service.py").write_text(SERVICE)
    return tmp_path


def watched(text: str, columns: int = 120) -> tuple[Terminal, list[list[str]]]:
    """The terminal after *text*, and what it showed after each write that drew bars."""
    terminal, moments = Terminal(columns), []
    for piece in re.split(r"(?=\x1b\[1A\x1b\[J)", text):
        terminal.feed(piece)
        moments.append(terminal.shown)
    return terminal, moments


def test_lines_go_above_the_bar_and_nothing_of_it_is_left(folder: Path) -> None:
    with on_terminal(*COMMAND, "run", "service:app", cwd=folder) as run:
        run.read_until(lambda: "over" in run.text.splitlines()[-1:])
        run.process.send_signal(signal.SIGTERM)
        run.read_until(lambda: False)
        assert run.process.wait(10) == 0
    terminal, moments = watched(run.text)
    with_bar = [lines for lines in moments if any(map(BAR.fullmatch, lines))]
    assert len(with_bar) > 300, "a bar was there while lines came"
    for lines in with_bar:
        assert BAR.fullmatch(lines[-2]), "the bar is the last line"
        assert lines[-1] == "", "and the cursor stands below it"
        assert not any(map(BAR.search, lines[:-2])), "there is one"
    assert {re.search(r"tasks (\d)", lines[-2])[1] for lines in with_bar} >= {"0", "7"}, "it moves"
    shown = terminal.shown
    assert [line for line in shown if "printed" in line] == [
        f"printed {number}" for number in range(300)
    ]
    assert [line for line in shown if "kept" in line] == [f"kept {number}" for number in range(300)]
    logged = [line for line in shown if "logged" in line]
    assert [line.partition(" WARNING shop: ")[2] for line in logged] == [
        f"logged {number}" for number in range(300)
    ]
    assert all(re.match(r"2\d{3}-\d\d-\d\dT", line) for line in logged), "each in one piece"
    assert "no line end yet, and now one" in shown
    assert not any(map(BAR.search, shown))


def test_a_bar_is_never_wider_than_the_terminal(folder: Path) -> None:
    with on_terminal(*COMMAND, "run", "service:app", cwd=folder, columns=60) as run:
        run.read_until(lambda: "printed 299" in run.text)
    _, moments = watched(run.text.rpartition("\n")[0] + "\n", columns=60)
    last = [
        lines[-2] for lines in moments if len(lines) > 1 and lines[-2].startswith("clicks 7f3a")
    ]
    assert len(last) > 10
    assert all(len(line) < 60 for line in last)


def test_a_process_that_ends_at_once_leaves_the_cursor_on_a_line_of_its_own(folder: Path) -> None:
    with on_terminal(*COMMAND, "run", "service:app", cwd=folder) as run:
        run.read_until(lambda: "logged 100" in run.text)
        run.process.kill()
        run.read_until(lambda: False)
    assert "\x1b[?25l" not in run.text, "the cursor was never hidden"
    complete = run.text[: run.text.rindex("\n") + 1]
    terminal, _ = watched(complete)
    assert terminal.shown[-1] == ""


def test_a_stop_that_leaves_a_thread_behind_leaves_no_bar(folder: Path) -> None:
    with on_terminal(*COMMAND, "run", "service:app", cwd=folder, env={"STUCK": "1"}) as run:
        run.read_until(lambda: "clicks 7f3a" in run.text)
        run.process.send_signal(signal.SIGTERM)
        run.read_until(lambda: False)
        assert run.process.wait(10) == 0
    terminal, moments = watched(run.text)
    assert any(BAR.fullmatch(line) for lines in moments for line in lines)
    assert not any(map(BAR.search, terminal.shown))


@pytest.mark.parametrize(
    ("arguments", "env"),
    [(("--log-format", "json"), {}), ((), {"TERM": "dumb"})],
    ids=["json", "dumb"],
)
def test_nothing_is_drawn_where_lines_are_for_machines_or_the_terminal_cannot(
    arguments: tuple[str, ...], env: dict[str, str], folder: Path
) -> None:
    with on_terminal(*COMMAND, "run", "service:app", *arguments, cwd=folder, env=env) as run:
        run.read_until(lambda: "printed 299" in run.text and "logged 299" in run.text)
    assert "\x1b" not in run.text
    assert "clicks 7f3a" not in run.text


def test_nothing_is_drawn_without_a_terminal(folder: Path) -> None:
    own = environment({"PYTHONPATH": str(Path(__file__).parents[2])})
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [*COMMAND, "run", "service:app"], cwd=folder, env=own, stdout=out, stderr=err
        )
        try:
            deadline = time.monotonic() + 30
            while "over" not in (folder / "out").read_text():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(10)
    err_text = (folder / "err").read_text()
    assert "\x1b" not in err_text + (folder / "out").read_text()
    assert "7f3a" not in err_text
    assert "logged 299" in err_text


def test_both_streams_are_put_back_and_a_stdout_that_is_a_file_is_never_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    leader, follower = pty.openpty()
    try:
        with os.fdopen(follower, "w") as terminal, (tmp_path / "out").open("w") as out:
            with redirect_stderr(terminal), redirect_stdout(out):
                with bottom_of_the_terminal() as bottom:
                    assert bottom is not None
                    assert sys.stdout is out
                    assert sys.stderr is not terminal
                assert (sys.stdout, sys.stderr) == (out, terminal)
            with redirect_stderr(terminal), redirect_stdout(terminal), bottom_of_the_terminal():
                assert sys.stdout is not terminal
            with (
                redirect_stderr(out),
                redirect_stdout(terminal),
                bottom_of_the_terminal() as bottom,
            ):
                assert (bottom, sys.stdout, sys.stderr) == (None, terminal, out)
    finally:
        os.close(leader)


# -- what is drawn


def test_there_is_a_row_for_each_batch_up_to_a_limit() -> None:
    many = [spark(running=tuple(batch(id=f"{number:04}") for number in range(20)))]
    *rows, more = drawn(many, 120, 40)
    assert [line[:11] for line in rows] == [f"clicks {number:04}" for number in range(7)]
    assert more.strip() == "and 13 more"
    *rows, more = drawn(many, 120, 6)
    assert (len(rows), more.strip()) == (3, "and 17 more")
    assert len(drawn(many, 120, 1)) == 1
    assert len(drawn([spark(running=(batch(),) * 8)], 120, 40)) == 8


def test_without_a_batch_there_is_nothing() -> None:
    assert App({}).spark_facts() == ()
    assert bars([spark(), spark(channel="views")], 80) is None
    assert drawn([spark()], 120, 40) == []


def test_a_batch_without_tasks_yet_has_a_bar_all_the_same() -> None:
    (line,) = drawn([spark(running=(batch(tasks=0, tasks_done=0, stages=0),))], 160, 40)
    assert "tasks 0/0" in line
    file = io.StringIO()
    nothing = bars([spark(running=(batch(tasks=0, tasks_done=0, stages=0),))], 160)
    Console(file=file, width=160, color_system=None).print(nothing)
    assert "━" not in file.getvalue(), "and it is empty"


@pytest.mark.parametrize(("done", "share"), [(0, 0), (4, 12), (8, 24)])
def test_the_bar_is_as_long_as_what_is_done(done: int, share: int) -> None:
    file = io.StringIO()
    Console(file=file, width=160, color_system=None).print(
        bars([spark(running=(batch(tasks_done=done),))], 160)
    )
    # Without colours what is not done is blank.
    assert file.getvalue().count("━") == share


@pytest.mark.parametrize(("share", "width"), [(0.0, 0), (0.25, 6), (0.75, 18), (1.0, 24)])
def test_the_bar_has_the_share_of_its_batch_whatever_tasks_were_added(
    share: float, width: int
) -> None:
    file = io.StringIO()
    one = batch(share=share, tasks=1000, tasks_done=5)
    Console(file=file, width=160, color_system=None).print(bars([spark(running=(one,))], 160))
    assert file.getvalue().count("━") == width


def test_what_a_channel_is_called_is_no_markup() -> None:
    (line,) = drawn([spark(channel="[red]x[/]", running=(batch(),))], 160, 40)
    assert line.startswith("[red]x[/] 7f3a")


def test_the_lines_of_the_demo_have_one_for_each_batch_that_runs() -> None:
    facts = app(channel(channel="clicks"), spark=(spark(running=(batch(),)),))
    assert channel_lines(facts, FactsApp(facts).health())[-1] == (
        "clicks 7f3a: 50000 records, stage 1/2, tasks 5/8 (2 running, 0 failed), 12s of 10m, attempt 1"
    )


def test_text_that_waits_for_its_line_end_is_not_lost_at_the_end() -> None:
    file = io.StringIO()
    bottom = Bottom(file)
    above = bottom.above(file)
    bottom.show(["bar"])
    above.write("a\nb")
    bottom.show([])
    terminal = Terminal()
    terminal.feed(file.getvalue().replace("\n", "\r\n"))
    assert terminal.shown == ["a", "b"]


def test_a_bar_that_comes_in_the_middle_of_a_line_begins_a_new_one() -> None:
    file = io.StringIO()
    bottom = Bottom(file)
    bottom.above(file).write("a")
    bottom.show(["bar"])
    assert file.getvalue() == "a\nbar\n"
