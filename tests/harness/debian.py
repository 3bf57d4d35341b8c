"""Servers out of Debian's packages, unpacked into our cache: nothing is installed."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reactive-kafka"


class MissingError(Exception):
    """The server is not here, and could not be fetched; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Package:
    """A server that Debian has.

    Attributes:
        install: What apt-get would be asked for.
        server: Matches the name of the package that holds the program.
        wanted: How the names begin that are fetched, of those that apt-get would install.
        unused: How the names begin that are left out all the same.
        advice: What to do where there is no Debian.
    """

    install: str
    server: re.Pattern[str]
    wanted: tuple[str, ...]
    advice: str
    unused: tuple[str, ...] = ()


def unpack(package: Package, target: Path, apt_options: Sequence[str] = ()) -> None:
    """Fetch a server, and the libraries that this machine lacks for it, into *target*.

    Raises:
        MissingError: This is no Debian, or the packages cannot be had.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise MissingError(
            f"no {package.install} on this machine, and no apt-get to fetch one: {package.advice}"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        folder, unpacked = Path(scratch), Path(scratch) / "unpacked"
        try:
            _download(package, folder, apt_options)
        except MissingError:
            # A fresh machine has no package lists; needs root.
            _run(package, ["apt-get", "update"], folder)
            _download(package, folder, apt_options)
        for file in folder.glob("*.deb"):
            _run(package, ["dpkg", "-x", str(file), str(unpacked)], folder)
        try:
            unpacked.rename(target)
        except OSError:
            # Another test run was faster.
            if not target.exists():
                raise


def libraries(root: Path) -> dict[str, str]:
    """What a program that was unpacked into *root* needs in its environment to find its
    libraries.
    """
    return {
        "LD_LIBRARY_PATH": ":".join(
            str(folder) for folder in (root / "usr/lib").glob("*-linux-gnu*")
        )
    }


def free_port() -> int:
    """A port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _download(package: Package, folder: Path, apt_options: Sequence[str]) -> None:
    simulated = [
        "apt-get",
        "install",
        "--simulate",
        "--no-install-recommends",
        *apt_options,
        package.install,
    ]
    found = re.findall(r"^Inst (\S+)", _run(package, simulated, folder), re.MULTILINE)
    wanted = [
        name
        for name in found
        if name.startswith(package.wanted) and not name.startswith(package.unused or "\0")
    ]
    if not any(package.server.fullmatch(name) for name in wanted):
        raise MissingError(f"{' '.join(simulated)!r} names no server, only {found}")
    _run(package, ["apt-get", "download", *wanted], folder)


def _run(package: Package, command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        raise MissingError(
            f"no {package.install} on this machine, and {' '.join(command)!r} failed: {done.stderr.strip()[-500:]}\n"
            f"{package.advice}, or run as root on Debian"
        )
    return done.stdout
