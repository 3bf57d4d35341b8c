"""Types a page of the documentation into terminals: its files, its commands, and what they print.

Three comments in a page's Markdown say what a code block is:

- ``<!-- file: NAME -->``: the block is written to that file.
- ``<!-- terminal: NAME -->``: a console block of a second terminal. Its command keeps running. A
  later block of the same terminal without a command is what it prints by then, and ``^C`` ends it.
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

from tests.cli.process import Running, environment, running
from tests.faults.driver import free_port
from tests.pages import ROOT, page

_STEP = re.compile(
    r"(?:^<!-- (file|terminal): (\S+) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
# These differ from run to run: times, durations, the partition of a record without a key.
_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00"), "TIME"),
    (re.compile(r"\bin \d+\.\d+s\b"), "in SECONDS"),
    (re.compile(r"\b(orders|greetings|invoices)-\d+ (offset )?\d+"), r"\1-PARTITION OFFSET"),
    # A topic that the broker creates after the group has joined is read from its beginning.
    (re.compile(r"\breset to (latest|earliest)\b"), "reset to START"),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass
class TypedPage:
    """One run of a page in an empty folder, with ports of its own.

    Args:
        name: The page, from the root of the repository.
        folder: An empty folder.
    """

    name: str
    folder: Path
    _terminals: dict[str, Running] = field(default_factory=dict)
    _ports: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ports = {"9092": str(free_port()), "9000": str(free_port())}

    def run(self) -> int:
        """Do what the page says, from top to bottom. Returns the number of commands."""
        commands = 0
        with ExitStack() as stack:
            for kind, which, language, text in self._steps():
                if kind == "file":
                    (self.folder / which).write_text(text)
                elif language != "console" or which == "none":
                    continue
                elif kind == "terminal":
                    commands += self._elsewhere(which, text, stack)
                else:
                    commands += self._here(text)
        return commands

    def _steps(self) -> Iterator[tuple[str, str, str, str]]:
        text = page(self.name).read_text()
        for port, free in self._ports.items():
            text = re.sub(rf"\b{port}\b", free, text)
        for match in _STEP.finditer(text):
            yield match[1] or "", match[2] or "", match[3], match[4]

    def _env(self) -> dict[str, str]:
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "REACTIVE_KAFKA__HTTP__PORT": self._ports["9000"],
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

    def _elsewhere(self, terminal: str, text: str, stack: ExitStack) -> int:
        """Start a command that keeps running, or look at what it prints."""
        found = list(_commands(text))
        if found:
            ((command, expected),) = found
            words = ["bash", "-c", f"exec {command}"]
            self._terminals[terminal] = stack.enter_context(
                running(*words, cwd=self.folder, env=self._env())
            )
        else:
            expected = text
        there = self._terminals[terminal]
        until_interrupt, interrupt, rest = expected.partition("^C\n")
        self._wait_for(there, until_interrupt)
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


def _steady(line: str) -> str:
    for varies, instead in _VARIES:
        line = varies.sub(instead, line)
    return line.rstrip()
