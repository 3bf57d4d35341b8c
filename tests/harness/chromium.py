"""A real browser for tests: the Chromium on the PATH, else Debian's packages unpacked into our
cache.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reactive-kafka"
PROGRAM = Path("usr/lib/chromium/chromium")
LOAD_LIMIT_S = 60.0


class ChromiumMissingError(Exception):
    """No Chromium is here and none could be fetched; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A page as the browser has it.

    Attributes:
        html: The document, written out again by the browser.
        complaints: What it said about the page on its console: what a policy refused, what could
            not be loaded.
    """

    html: str
    complaints: tuple[str, ...]


def find_chromium() -> tuple[Path, list[Path]]:
    """The program, and the folders of libraries that it needs beside the system's.

    Fetches Debian's packages when there is none, with the libraries that this machine lacks;
    installs nothing.

    Raises:
        ChromiumMissingError: This is no Debian, or the packages cannot be had.
    """
    on_path = shutil.which("chromium") or shutil.which("google-chrome")
    if on_path is not None:
        return Path(on_path), []
    cached = CACHE / "chromium"
    if not (cached / PROGRAM).exists():
        _unpack_packages(cached)
    return cached / PROGRAM, _library_folders(cached)


def load(url: str, folder: Path, *, screenshot: Path | None = None) -> Loaded:
    """The page at *url* as a new browser has it; its profile is kept in *folder*.

    Raises:
        ChromiumMissingError: See :func:`find_chromium`.
    """
    program, libraries = find_chromium()
    environ = dict(os.environ)
    if libraries:
        environ["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, libraries))
    command = [
        str(program),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--enable-logging=stderr",
        "--log-level=0",
        # Nothing leaves this machine.
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={folder}",
        "--window-size=1400,1000",
        f"--screenshot={screenshot}" if screenshot else "--dump-dom",
        url,
    ]
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=LOAD_LIMIT_S, check=False
    )
    if done.returncode:
        raise AssertionError(f"chromium ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return Loaded(
        done.stdout, tuple(line for line in done.stderr.splitlines() if ":CONSOLE" in line)
    )


def _library_folders(unpacked: Path) -> list[Path]:
    """Some libraries keep those of their own in a folder below."""
    own = f"{platform.machine()}-linux-gnu"
    return sorted(
        {
            file.parent
            for top in ("lib", "usr/lib")
            for file in (unpacked / top / own).rglob("*.so*")
        }
    )


def _unpack_packages(target: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise ChromiumMissingError(
            "no chromium on the PATH, and no apt-get to fetch one: install Chromium"
        )
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        archives, unpacked = Path(folder) / "archives", Path(folder) / "unpacked"
        (archives / "partial").mkdir(parents=True)
        _download(archives)
        for package in archives.glob("*.deb"):
            _run(["dpkg", "-x", str(package), str(unpacked)])
        try:
            unpacked.rename(target)
        except OSError:
            # Another test run was faster.
            if not (target / PROGRAM).exists():
                raise


def _download(archives: Path) -> None:
    fetch = [
        "apt-get",
        "install",
        "--yes",
        "--no-install-recommends",
        "--download-only",
        "-o",
        f"Dir::Cache::archives={archives}",
        "chromium",
    ]
    try:
        _run(fetch)
    except ChromiumMissingError:
        # A fresh machine has no package lists; needs root.
        _run(["apt-get", "update"])
        _run(fetch)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise ChromiumMissingError(
            f"no chromium on the PATH, and {' '.join(command)!r} failed: {done.stderr.strip()[-500:]}\n"
            "install Chromium, or run as root on Debian, or leave its tests out: REACTIVE_KAFKA_WITHOUT=chromium"
        )
