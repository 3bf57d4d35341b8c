"""The site, built once for a session of tests by the command that people use."""

from __future__ import annotations

import fcntl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import pytest

from docs_tools.repository import ROOT

DONE = "\nbuilt\n"
BUILD_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class BuiltSite:
    """A site, and what the build said.

    Attributes:
        python: Of the environment that builds and checks the site.
    """

    folder: Path
    said: str
    python: Path


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> BuiltSite:
    """What ``make docs`` makes; a warning fails it.

    Tests may run in several processes. The first one builds the site, the others wait for it.
    """
    folder = tmp_path_factory.getbasetemp()
    is_alone = worker_id == "master"
    log = (folder if is_alone else folder.parent) / "make-docs.log"
    with log.open("a+") as said:
        fcntl.flock(said, fcntl.LOCK_EX)
        said.seek(0)
        if not said.read():
            _build(said)
    text = log.read_text()
    assert text.endswith(DONE), text
    python = ROOT / ".venv-docs" / "bin" / "python"
    return BuiltSite(ROOT / "build" / "site", text, python)


def _build(log: TextIO) -> None:
    done = subprocess.run(
        ["make", "docs"],
        cwd=ROOT,
        stdout=log,
        stderr=subprocess.STDOUT,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    log.write(DONE if done.returncode == 0 else f"\nexit code {done.returncode}\n")
    log.flush()
