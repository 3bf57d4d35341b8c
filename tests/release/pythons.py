"""The Pythons of this machine that the package supports, and virtual environments of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

OLDEST = (3, 11)
TOOLS = Path(sys.executable).parent
"""uv, twine and the linters: they are in the environment that runs the tests."""

_ASK = "import platform, sys; print(sys.implementation.name, platform.python_version())"


class Python(NamedTuple):
    """One installed CPython."""

    version: str
    path: Path

    def __str__(self) -> str:
        return self.version


def pythons() -> list[Python]:
    """Each CPython 3.11 or newer, one of each version; the one that runs the tests comes first."""
    found: dict[str, Python] = {}
    for path in _candidates():
        asked = subprocess.run([path, "-I", "-c", _ASK], capture_output=True, text=True)
        # pyenv has shims of versions that are switched off: they exist and do not run.
        if asked.returncode != 0:
            continue
        implementation, version = asked.stdout.split()
        numbers = tuple(map(int, version.split(".")[:2]))
        if implementation == "cpython" and numbers >= OLDEST:
            found.setdefault(version, Python(version, path))
    return list(found.values())


def _candidates() -> Iterator[Path]:
    yield Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob("versions/3.*/bin/python"))
    yield from sorted(Path.home().glob(".local/share/uv/python/cpython-*/bin/python3"))
    for folder in ("/usr/bin", "/usr/local/bin"):
        yield from sorted(Path(folder).glob("python3.[0-9][0-9]"))


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command outside of the checkout; its output.

    Raises:
        AssertionError: It failed.
    """
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*command],
        cwd=cwd,
        env=outside | (env or {}),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def make_environment(python: Python, folder: Path, lock: Path, wheel: Path) -> Path:
    """A virtual environment with the packages of *lock*, checked by hash, and *wheel*.

    Returns:
        The folder of its commands.
    """
    uv = TOOLS / "uv"
    run(uv, "--quiet", "venv", "--no-project", "--python", python.path, folder, cwd=lock.parent)
    commands = folder / "bin"
    install = (uv, "--quiet", "pip", "install", "--python", commands / "python", "--no-deps")
    run(*install, "--require-hashes", "--requirement", lock, cwd=lock.parent)
    run(*install, wheel, cwd=lock.parent)
    return commands
