"""Runs measurements of Spark, each in a process of its own, with a topic that suits it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

from benchmarks import topic
from benchmarks.runs import RunFailedError
from benchmarks.spark import figures, plan
from benchmarks.spark.beside import ticks_topic
from benchmarks.spark.work import click

ROOT = Path(__file__).resolve().parents[2]
RUN_TIMEOUT_S = 420.0


class Runs:
    """Runs measurements in processes of their own.

    Args:
        bootstrap: ``host:port`` of the broker.
        batches: That the run of a contender measures.
    """

    def __init__(self, bootstrap: str, batches: int) -> None:
        self._bootstrap = bootstrap
        self._batches = batches
        self._topic = f"bench-{uuid.uuid4().hex[:8]}"
        most = max(
            batches + plan.SPARE_BATCHES,
            plan.LIGHT_BATCHES + plan.SPARE_BATCHES,
            plan.BESIDE_BATCHES + 1,
        )
        self._all_batches = plan.WARM_BATCHES + most

    def fill(self) -> None:
        """Write the topic that all but one read."""
        records = self._all_batches * plan.BATCH_RECORDS
        asyncio.run(topic.fill(self._bootstrap, self._topic, records, click))
        print(f"{records:,} records of {plan.VALUE_BYTES} bytes written", flush=True)

    def throughput(self, contender: plan.Contender) -> figures.Throughput:
        """One run of a contender. Ours is to have committed what it was measured with."""
        group = f"{contender.run}-{uuid.uuid4().hex[:8]}"
        done = plan.WARM_BATCHES + self._batches
        found = figures.read_throughput(
            self._run(
                contender.run,
                self._topic,
                group,
                plan.BATCH_RECORDS,
                plan.WARM_BATCHES,
                self._batches,
            )
        )
        if contender in plan.OURS:
            stored = asyncio.run(topic.committed(self._bootstrap, self._topic, group))
            if stored < done * plan.BATCH_RECORDS:
                raise RunFailedError(
                    f"committed {stored:,} of {done * plan.BATCH_RECORDS:,} records"
                )
        return found

    def light(self, contender: plan.Contender) -> figures.Light:
        """One run of a contender with a light job."""
        group = f"{contender.run}-{uuid.uuid4().hex[:8]}"
        return figures.read_light(
            self._run(
                contender.run,
                self._topic,
                group,
                plan.BATCH_RECORDS,
                plan.WARM_BATCHES,
                plan.LIGHT_BATCHES,
            )
        )

    def growth(self) -> figures.Growth:
        """A backlog in a topic of its own, and one that is there to warm up with."""
        name = f"{self._topic}-growth"
        asyncio.run(topic.fill(self._bootstrap, f"{name}-warm", plan.FEW_RECORDS, click))
        asyncio.run(
            topic.fill(
                self._bootstrap, name, plan.GROWTH_BATCHES * plan.BATCH_RECORDS, plan.of_growth
            )
        )
        return figures.read_growth(
            self._run("growth", name, "growth", plan.BATCH_RECORDS, 0, plan.GROWTH_BATCHES)
        )

    def trickle(self) -> figures.Trickle:
        """Few records, in a topic of their own."""
        name = f"{self._topic}-trickle"
        asyncio.run(topic.create(self._bootstrap, name))
        return figures.read_trickle(
            self._run(
                "trickle", name, name, plan.BATCH_RECORDS, plan.OVERHEAD_WARM, plan.TRICKLE_BATCHES
            )
        )

    def overhead(self, records: int, batches: int) -> figures.Overhead:
        """Batches of one size, in a topic of their own: it is written as they are measured."""
        name = f"{self._topic}-{records}"
        asyncio.run(topic.create(self._bootstrap, name))
        return figures.read_overhead(
            self._run("overhead", name, name, records, plan.OVERHEAD_WARM, batches)
        )

    def beside(self) -> figures.Beside:
        """The plain channel; the topic's last batch is the long job."""
        asyncio.run(topic.create(self._bootstrap, ticks_topic(self._topic)))
        return figures.read_beside(
            self._run(
                "beside",
                self._topic,
                "beside",
                plan.BATCH_RECORDS,
                plan.WARM_BATCHES,
                self._batches,
            )
        )

    def _run(
        self, what: str, name: str, group: str, batch_records: int, warm: int, batches: int
    ) -> str:
        """The last line of one process.

        Raises:
            RunFailedError: It ended with an error, or took too long.
        """
        command = [sys.executable, "-m", "benchmarks.spark.run", what]
        command += ["--bootstrap", self._bootstrap, "--topic", name, "--group", group]
        numbers = {
            "batch-records": batch_records,
            "warm": warm,
            "batches": batches,
            "all-batches": self._all_batches,
        }
        for option, number in numbers.items():
            command += [f"--{option}", str(number)]
        # a session of its own, so that its Spark ends with it whatever happens
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=RUN_TIMEOUT_S)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            _, err = process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise RunFailedError(f"not done after {RUN_TIMEOUT_S:g} s: {_tail(err)}") from error
            raise
        if process.returncode or not out.strip():
            raise RunFailedError(f"exit code {process.returncode}: {_tail(err)}")
        return out.splitlines()[-1]


def _tail(text: str) -> str:
    return "\n".join((text or "no output").splitlines()[-25:])
