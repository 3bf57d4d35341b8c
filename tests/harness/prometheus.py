"""A real Prometheus server for tests: the one on the PATH, else Debian's package unpacked into our
cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reactive-kafka"
READY_TIMEOUT_S = 30.0


class PrometheusMissingError(Exception):
    """No Prometheus is here and none could be fetched; the text says what to do."""


def find_prometheus() -> Path:
    """Path of a ``prometheus`` program. Fetches Debian's package when there is none; installs
    nothing.

    Raises:
        PrometheusMissingError: This is no Debian, or the package cannot be had.
    """
    on_path = shutil.which("prometheus")
    if on_path is not None:
        return Path(on_path)
    cached = CACHE / "prometheus"
    program = cached / "usr/bin/prometheus"
    if not program.exists():
        _unpack_package(cached)
    return program


def _unpack_package(target: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise PrometheusMissingError(
            "no prometheus on the PATH, and no apt-get to fetch one: install Prometheus 2.x"
        )
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        _download(Path(folder))
        (package,) = Path(folder).glob("prometheus_*.deb")
        unpacked = Path(folder) / "unpacked"
        _run(["dpkg", "-x", str(package), str(unpacked)], Path(folder))
        try:
            unpacked.rename(target)
        except OSError:
            # Another test run was faster.
            if not (target / "usr/bin/prometheus").exists():
                raise


def _download(folder: Path) -> None:
    try:
        _run(["apt-get", "download", "prometheus"], folder)
    except PrometheusMissingError:
        # A fresh machine has no package lists; needs root.
        _run(["apt-get", "update"], folder)
        _run(["apt-get", "download", "prometheus"], folder)


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        raise PrometheusMissingError(
            f"no prometheus on the PATH, and {' '.join(command)!r} failed: {done.stderr.strip()[-500:]}\n"
            "install Prometheus 2.x, or run as root on Debian"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A running server and its query API."""

    url: str
    pid: int
    client: httpx.AsyncClient

    async def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """What *expression* is now: labels and value of each series."""
        answer = await self.client.get(f"{self.url}/api/v1/query", params={"query": expression})
        answer.raise_for_status()
        return [
            (item["metric"], float(item["value"][1])) for item in answer.json()["data"]["result"]
        ]

    async def value(self, expression: str) -> float | None:
        """The value of the one series that *expression* is, None when there is none."""
        series = await self.query(expression)
        if len(series) > 1:
            raise AssertionError(f"{expression} is {len(series)} series: {series}")
        return series[0][1] if series else None

    async def exemplars(self, expression: str) -> list[dict[str, Any]]:
        """The exemplars of the last minute of the series that *expression* names."""
        now = time.time()
        answer = await self.client.get(
            f"{self.url}/api/v1/query_exemplars",
            params={"query": expression, "start": str(now - 60), "end": str(now + 60)},
        )
        answer.raise_for_status()
        return [found for series in answer.json()["data"] for found in series["exemplars"]]

    async def until(self, expression: str, value: float, timeout_s: float = 15.0) -> None:
        """Wait until *expression* has *value*.

        Raises:
            AssertionError: It has not within *timeout_s*; the text says what it is, and what the
                targets say.
        """
        if not await _comes_true(lambda: self._is(expression, value), timeout_s):
            raise AssertionError(
                f"{expression} is {await self.query(expression)}, not {value}, after {timeout_s} s; "
                f"targets: {await self.targets()}"
            )

    async def targets(self) -> list[dict[str, Any]]:
        """The active targets, each with ``health`` and ``lastError``."""
        answer = await self.client.get(f"{self.url}/api/v1/targets")
        targets: list[dict[str, Any]] = answer.json()["data"]["activeTargets"]
        return targets

    async def _is(self, expression: str, value: float) -> bool:
        return await self.value(expression) == value


@contextlib.asynccontextmanager
async def running_prometheus(
    targets: Sequence[str], folder: Path, scrape_interval: str = "500ms"
) -> AsyncIterator[Prometheus]:
    """A server on a free loopback port that scrapes ``/metrics`` of *targets* (``host:port``); data
    in *folder*.

    Raises:
        PrometheusMissingError: See :func:`find_prometheus`.
    """
    program = await asyncio.to_thread(find_prometheus)
    port = _free_port()
    config = folder / "prometheus.yml"
    # JSON is YAML.
    config.write_text(json.dumps(_config(targets, scrape_interval)))
    log = folder / "prometheus.log"
    process = _start(program, port, config, folder / "data", log)
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
            server = Prometheus(url=f"http://127.0.0.1:{port}", pid=process.pid, client=client)
            if not await _comes_true(lambda: _is_ready(server, process), READY_TIMEOUT_S):
                raise AssertionError(
                    f"prometheus was not ready within {READY_TIMEOUT_S} s:\n{log.read_text()}"
                )
            if process.poll() is not None:
                raise AssertionError(
                    f"prometheus ended with {process.returncode}:\n{log.read_text()}"
                )
            yield server
    finally:
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, 10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(
    program: Path, port: int, config: Path, data: Path, log: Path
) -> subprocess.Popen[bytes]:
    command = [
        str(program),
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
        "--enable-feature=exemplar-storage",
    ]
    with log.open("w") as sink:
        return subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT)


async def _is_ready(server: Prometheus, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        # Nothing to wait for.
        return True
    try:
        return (await server.client.get(f"{server.url}/-/ready")).status_code == 200
    except httpx.TransportError:
        return False


async def _comes_true(condition: Callable[[], Any], timeout_s: float) -> bool:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not await condition():
        if loop.time() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


def _config(targets: Sequence[str], interval: str) -> dict[str, Any]:
    return {
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "evaluation_interval": "1s",
        },
        "scrape_configs": [
            {"job_name": "reactive_kafka", "static_configs": [{"targets": list(targets)}]}
        ],
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
