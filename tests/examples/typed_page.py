"""Types a page of the documentation into terminals: its files, its commands, and what they print.

Three comments in a page's Markdown say what a code block is:

- ``<!-- file: NAME -->``: the block is written to that file.
- ``<!-- terminal: NAME -->``: a console block of a second terminal. Its command keeps running. A
  later block of the same terminal without a command is what it prints by then, and ``^C`` ends it.
- ``<!-- terminal: NAME, any order -->``: the same, for lines whose order differs from run to run.
- ``<!-- terminal: none -->``: not run, because the test has it already (an environment).

Every other console block runs in the first terminal, command by command.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.cli.process import Running, environment, running
from tests.faults.driver import free_port
from tests.pages import ROOT, page

_LINES = re.MULTILINE | re.DOTALL
_STEP = re.compile(
    r"(?:^<!-- (file|terminal): ([^\s,]+)(, any order)? -->\n)?^```(\w*)\n(.*?)^```$", _LINES
)
_NUMBER = re.compile(r"\d+(\.\d+)?")
# These differ from run to run: times, durations, the partition of a record without a key.
_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d+(\+00:00)?"), "TIME"),
    (re.compile(r"\bin \d+\.\d+ ?s\b"), "in SECONDS"),
    (re.compile(r"\b(orders|greetings|invoices)-\d+ (offset )?\d+"), r"\1-PARTITION OFFSET"),
    # A topic that the broker creates after the group has joined is read from its beginning.
    (re.compile(r"\breset to (latest|earliest)\b"), "reset to START"),
    (re.compile(r"[ \t]+"), " "),
)


class _Step(NamedTuple):
    """One code block of a page.

    Attributes:
        kind: ``file``, ``terminal``, or empty.
        which: Name of the file or the terminal, or empty.
        in_order: Whether the lines that it shows come in this order.
        language: ``console``, ``python``...
        text: The block.
    """

    kind: str
    which: str
    in_order: bool
    language: str
    text: str


@dataclass
class TypedPage:
    """One run of a page in an empty folder, with ports of its own.

    Args:
        name: The page, from the root of the repository.
        folder: An empty folder, or one with the files that the page is about.
        kafka: ``host:port`` of a broker that runs, if the page starts none.
    """

    name: str
    folder: Path
    kafka: str | None = None
    _terminals: dict[str, Running] = field(default_factory=dict)
    _ports: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ports = {port: str(free_port()) for port in ("9092", "9000", "9001", "8000")}

    def run(self) -> int:
        """Do what the page says, from top to bottom. Returns the number of commands."""
        commands = 0
        with ExitStack() as stack:
            for step in self._steps():
                if step.kind == "file":
                    (self.folder / step.which).write_text(step.text)
                elif step.language != "console" or step.which == "none":
                    continue
                elif step.kind == "terminal":
                    commands += self._elsewhere(step, stack)
                else:
                    commands += self._here(step.text)
            if self.kafka is not None:
                self._leave_groups()
        return commands

    def with_own_addresses(self, text: str) -> str:
        """The text of the page or of one of its files, with the addresses of this run."""
        if self.kafka is not None:
            text = text.replace("localhost:9092", self.kafka)
        for port, free in self._ports.items():
            text = re.sub(rf"\b{port}\b", free, text)
        return text

    def _steps(self) -> Iterator[_Step]:
        text = self.with_own_addresses(page(self.name).read_text())
        for match in _STEP.finditer(text):
            yield _Step(match[1] or "", match[2] or "", not match[3], match[4], match[5])

    def _leave_groups(self) -> None:
        """End what still runs. A killed member would keep its group waiting on the broker."""
        left = [one for one in self._terminals.values() if one.process.poll() is None]
        for terminal in left:
            terminal.process.send_signal(signal.SIGINT)
        for terminal in left:
            terminal.end(60.0)

    def _env(self) -> dict[str, str]:
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            # Several applications of a page whose files name their ports cannot share one.
            "REACTIVE_KAFKA__HTTP__PORT": self._ports["9000"] if self.kafka is None else "0",
        }

    def _here(self, text: str) -> int:
        """Run the commands one after the other, each to its end."""
        commands = 0
        for command, expected in _commands(text):
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.folder,
                env=environment(self._env()),
                capture_output=True,
                text=True,
                timeout=90.0,
                check=False,
            )
            said = f"$ {command}\n{done.stdout}\n{done.stderr}"
            assert done.returncode == 0, said
            assert printed(expected, done.stdout, whole=True), f"{said}\n--- expected\n{expected}"
            commands += 1
        return commands

    def _elsewhere(self, step: _Step, stack: ExitStack) -> int:
        """Start a command that keeps running, or look at what it prints."""
        terminal = step.which
        found = list(_commands(step.text))
        if found:
            ((command, expected),) = found
            words = ["bash", "-c", f"exec env {command}"]
            self._terminals[terminal] = stack.enter_context(
                running(*words, cwd=self.folder, env=self._env())
            )
        else:
            expected = step.text
        there = self._terminals[terminal]
        until_interrupt, interrupt, rest = expected.partition("^C\n")
        parts = [until_interrupt] if step.in_order else until_interrupt.splitlines(keepends=True)
        for part in parts:
            self._wait_for(there, part)
        if interrupt:
            there.process.send_signal(signal.SIGINT)
            assert there.end(60.0).code == 0, there.said
            assert printed(rest, there.err + there.out), f"{there.said}\n--- expected\n{rest}"
        return len(found)

    @staticmethod
    def _wait_for(terminal: Running, expected: str) -> None:
        terminal.wait_for(
            lambda: printed(expected, terminal.out) or printed(expected, terminal.err),
            f"it prints\n{expected}",
            timeout_s=120.0,
        )


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block, with what it prints. A command goes on after a backslash."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        command = lines.pop(0)
        while command.endswith("\\\n"):
            command += lines.pop(0)
        yield command.strip(), "".join(lines)


def printed(expected: str, output: str, *, whole: bool = False) -> bool:
    """Whether a program printed what a page shows.

    A line ``...`` of the page stands for any lines, and `` ...`` at the end of a line for its rest.

    Args:
        expected: What the page shows.
        output: What the program has printed.
        whole: Whether the page shows everything. Otherwise lines before and after it do not matter.
    """
    lines = [_steady(line) for line in expected.splitlines()]
    if not lines:
        return True
    pattern = ""
    for line in lines:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*"
        elif line.endswith(" ..."):
            pattern += re.escape(line.removesuffix("...")) + r".*\n"
        else:
            pattern += re.escape(line) + r"\n"
    text = "".join(f"{_steady(line)}\n" for line in output.splitlines())
    if whole:
        return re.fullmatch(pattern, text) is not None
    return re.search(rf"^{pattern}", text, re.MULTILINE) is not None


def printed_but_for_numbers(expected: str, output: str) -> bool:
    """Whether a program printed these lines, whatever their numbers are."""
    return printed(_NUMBER.sub("N", expected), _NUMBER.sub("N", output))


def section(name: str, heading: str) -> str:
    """The text of a page under a heading of the second level; empty if it has none."""
    _, _, rest = page(name).read_text().partition(f"\n## {heading}\n")
    return rest.partition("\n## ")[0]


def shown(name: str) -> str:
    """The output in the first console block under "What you see", without the command."""
    block = re.search(
        r"^```console\n(?:\$ [^\n]*\n)?(.*?)^```$", section(name, "What you see"), _LINES
    )
    assert block is not None, f"{name} shows no output"
    return block[1]


def _steady(line: str) -> str:
    for varies, instead in _VARIES:
        line = varies.sub(instead, line)
    return line.rstrip()
