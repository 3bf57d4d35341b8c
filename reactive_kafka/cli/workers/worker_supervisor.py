"""Runs an application in several processes, and starts those again that die."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from reactive_kafka.cli.workers.parent_signals import handling, how_ended
from reactive_kafka.cli.workers.restart_rules import (
    TERMINATED,
    EndRules,
    RestartDelays,
    exit_code_of,
)
from reactive_kafka.cli.workers.supervisor_http import SupervisorHttp
from reactive_kafka.cli.workers.worker_process import WorkerProcess, start_process
from reactive_kafka.errors import ConfigError, describe
from reactive_kafka.runtime.signals import SIGNALS
from reactive_kafka.tasks import Flag

KILLED_AFTER_S = 2.0
"""How long workers may take to exit after a second signal."""
RETRY_S = 1.0
"""The shortest wait after a process could not be started."""

logger = logging.getLogger("reactive_kafka")


class SupervisedWorker:
    """The place of one worker, whose processes come and go."""

    def __init__(self, number: int) -> None:
        self.number = number
        # None while no process runs.
        self.process: WorkerProcess | None = None
        self.delays = RestartDelays()
        self.restarts = 0
        self.last_end = "it has not been started yet"
        # The exit code of its last process.
        self.code = 0

    @property
    def keeps_failing(self) -> bool:
        """True if restarts have not helped so far."""
        if self.process is not None:
            self.delays.settled(self.process.started_at, time.monotonic())
        return self.delays.keeps_failing


class WorkerSupervisor:
    """The parent of the workers. It handles no records.

    Args:
        count: How many workers.
        arguments: What each worker's ``run`` is called with.
    """

    def __init__(self, count: int, arguments: Sequence[str], rules: EndRules) -> None:
        self._workers = [SupervisedWorker(number) for number in range(1, count + 1)]
        self._arguments = arguments
        self._rules = rules
        self._http = SupervisorHttp(self._workers)
        self._stack = AsyncExitStack()
        self._stopping = Flag()
        self._has_loaded = False
        # One task for each worker. What escapes from one ends all.
        self._tasks = asyncio.TaskGroup()
        # Set by a second signal, or by the first worker that ends everything.
        self._code: int | None = None
        # Why it cannot listen.
        self._error: ConfigError | None = None

    async def run(self) -> int:
        """Run until all workers have ended for good. Returns the exit code.

        Raises:
            ConfigError: The HTTP address cannot be bound.
        """
        with handling(SIGNALS, self._signalled):
            async with self._stack, self._tasks:
                # The first worker tells whether the application can be loaded, and where to listen.
                # So a mistake is reported once.
                self._tasks.create_task(self._keep(self._workers[0]), name="worker 1")
        if self._error is not None:
            raise self._error
        if self._code is not None:
            return self._code
        codes = [worker.code for worker in self._workers]
        return exit_code_of(codes, is_until_end=self._rules.until_end)

    async def _keep(self, worker: SupervisedWorker) -> None:
        """Run one worker, again and again, until it has ended for good."""
        while not self._stopping.is_set():
            try:
                process = await start_process(["--worker", str(worker.number), *self._arguments])
            except OSError as error:
                # No memory, no descriptor, or too many processes. That may pass.
                worker.last_end = f"it cannot be started: {describe(error)}"
                logger.error("worker %d cannot be started: %s", worker.number, describe(error))
                now = time.monotonic()
                await self._wait_unless_stopped(max(RETRY_S, worker.delays.ended(now, now)))
                continue
            worker.process = process
            if self._stopping.is_set():
                process.send(signal.SIGTERM)
            told = await process.loaded()
            if told is not None:
                logger.info("worker %d has loaded (pid %d)", worker.number, process.pid)
                await self._loaded(told)
            worker.code = await process.end()
            worker.process = None
            if not await self._waited_for_restart(worker, process):
                return
            worker.restarts += 1

    async def _loaded(self, told: dict[str, Any]) -> None:
        """Listen, and start the other workers, when the first one has loaded the application."""
        if self._has_loaded or self._stopping.is_set():
            return
        self._has_loaded = True
        address = told["http"]
        if address is not None:
            from reactive_kafka.http.server import serve

            # The type of starlette for an application is wider than what is called here.
            asgi: Any = self._http
            serving = serve(asgi, address["host"], address["port"])
            try:
                server = await self._stack.enter_async_context(serving)
            except ConfigError as error:
                self._error = error
                self._stop_workers()
                return
            logger.info("%d workers, HTTP %s", len(self._workers), server.url)
        else:
            logger.info("%d workers, HTTP off", len(self._workers))
        for worker in self._workers[1:]:
            self._tasks.create_task(self._keep(worker), name=f"worker {worker.number}")

    async def _waited_for_restart(self, worker: SupervisedWorker, process: WorkerProcess) -> bool:
        """Return True after the wait for a restart; False if there is none."""
        # It may wait for a scrape, which the restart must not.
        self._tasks.create_task(self._http.ended(process), name="counts of an ended worker")
        follows = self._rules.after_end(
            worker.code, is_stopping=self._stopping.is_set(), has_loaded=self._has_loaded
        )
        how = how_ended(worker.code)
        if follows == "finished":
            return False
        if follows == "end all":
            logger.error("worker %d has ended (%s), and all end for it", worker.number, how)
            self._code = worker.code if worker.code > 0 else 1
            self._stop_workers()
            return False
        delay_s = worker.delays.ended(process.started_at, time.monotonic())
        worker.last_end = f"it has ended ({how}), and is started again"
        logger.error(
            "worker %d has ended (%s, pid %d): it is started again in %g s",
            worker.number,
            how,
            process.pid,
            delay_s,
        )
        # If the stop comes first, nothing of it is left to end.
        worker.code = TERMINATED
        await self._wait_unless_stopped(delay_s)
        return not self._stopping.is_set()

    async def _wait_unless_stopped(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    def _signalled(self, number: signal.Signals) -> None:
        """The first signal drains the workers. A second one ends them at once."""
        if not self._stopping.is_set():
            logger.info("%s: the workers drain", number.name)
            self._stop_workers()
            return
        if number.name == "SIGHUP":
            # When a terminal closes, the shell and the kernel both send it.
            return
        self._code = 1
        self._send_to_all(signal.SIGTERM)
        loop = asyncio.get_running_loop()
        loop.call_later(KILLED_AFTER_S, self._send_to_all, signal.SIGKILL)

    def _stop_workers(self) -> None:
        self._stopping.set()
        self._send_to_all(signal.SIGTERM)

    def _send_to_all(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.process is not None:
                worker.process.send(number)
