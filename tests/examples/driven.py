"""Runs the driver of an example, and compares what it prints with the example's README."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.cli.process import environment
from tests.examples.typed_page import printed_but_for_numbers, section
from tests.pages import ROOT

_CONSOLE = re.compile(r"^```console\n\$ [^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def driven(example: str, kafka: str, kills: int, *options: str) -> None:
    """Run ``python -m examples.EXAMPLE.drive``. It prints what its README shows.

    Raises:
        AssertionError: A check of the driver has failed, or the README shows something else.
    """
    command = [sys.executable, "-m", f"examples.{example}.drive", "--kafka", kafka, *options]
    done = subprocess.run(
        [*command, "--kills", str(kills)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120 + 15 * kills,
        check=False,
    )
    said = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, said
    shown = _CONSOLE.search(section(f"examples/{example}/README.md", "Kill it"))
    assert shown is not None, "the README shows no output of the driver"
    assert printed_but_for_numbers(shown[1], done.stdout), f"{said}\n--- expected\n{shown[1]}"
