"""One run of a contender or of a gauge: a process of its own, on the Python that is asked for."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import uuid
from collections.abc import Sequence

from benchmarks import machine, topic
from benchmarks.contenders.meter import Result
from benchmarks.figures import Figures, medians
from benchmarks.gauges.plan import Gauge
from benchmarks.machine import ROOT
from benchmarks.place import Place
from benchmarks.plan import WAIT_S, Contender

RUN_TIMEOUT_S = 120.0

Row = Contender | Gauge


class RunFailedError(Exception):
    """A contender did not handle all its records, or did not commit them."""


def run(row: Row, place: Place, python: str) -> Figures:
    """What a run of *row* measures.

    Raises:
        RunFailedError: It ended with an error, took too long, or committed less than it should
            have.
    """
    if isinstance(row, Gauge):
        return medians([_gauge(row, place, python) for _ in range(row.times)])
    return _contender(row, place, python)


def _gauge(gauge: Gauge, place: Place, python: str) -> Figures:
    command = [python, "-m", "benchmarks.gauges", gauge.run, "--bootstrap", place.bootstrap]
    command += [
        "--group",
        _group_of(gauge),
        "--given",
        str(gauge.given),
        "--filled",
        str(gauge.filled),
    ]
    command += [word for name in place.gauged[gauge.name] for word in ("--topic", name)]
    figures: Figures = json.loads(_last_line([*command, "--began", str(time.monotonic_ns())]))
    return figures


def _group_of(row: Row) -> str:
    """A consumer group that nobody used before."""
    return f"{row.run.replace(':', '-')}-{uuid.uuid4().hex[:8]}"


def _contender(contender: Contender, place: Place, python: str) -> Figures:
    bootstrap = place.bootstrap
    wanted = place.records_of(contender)
    name = place.topics[contender.source]
    group = _group_of(contender)
    command = [python, "-m", "benchmarks.contenders", contender.run]
    command += [
        "--bootstrap",
        bootstrap,
        "--topic",
        name,
        "--group",
        group,
        "--records",
        str(wanted),
    ]
    command += ["--wait", str(WAIT_S if contender.series == "10 ms" else 0.0)]
    if contender.values == "Avro":
        command += ["--registry", place.registry]
    target = f"{group}-out" if contender.series == "sending" else None
    if target is not None:
        asyncio.run(topic.create(bootstrap, target, partitions=contender.partitions))
        command += ["--target", target]
    result = Result(**json.loads(_last_line(command)))
    if target is not None:
        written = asyncio.run(topic.length(bootstrap, target, partitions=contender.partitions))
        if written < wanted or (written > wanted and not (contender.reads or contender.marks)):
            raise RunFailedError(
                f"{written:,} records stand in its topic, and it was to write {wanted:,}"
            )
    if contender.reads:
        stored = asyncio.run(
            topic.committed(bootstrap, name, group, partitions=contender.partitions)
        )
        if stored < (wanted if contender.reads_all else 1):
            raise RunFailedError(f"committed {stored:,} of {wanted:,} records")
    return result.figures()


def _last_line(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=machine.environment(),
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailedError(
            f"not done after {RUN_TIMEOUT_S:g} s: {_tail(error.stderr)}"
        ) from error
    if done.returncode or not done.stdout.strip():
        raise RunFailedError(f"exit code {done.returncode}: {_tail(done.stderr)}")
    return done.stdout.splitlines()[-1]


def _tail(text: str | bytes | None) -> str:
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    return "\n".join((text or "no output").splitlines()[-15:])
