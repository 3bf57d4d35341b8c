"""Runs an application in a child process, and restarts it when its files change."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reactive_kafka.cli.workers.parent_signals import handling, how_ended
from reactive_kafka.cli.workers.worker_process import WorkerProcess, start_process
from reactive_kafka.errors import MissingExtraError, describe
from reactive_kafka.runtime.signals import SIGNALS
from reactive_kafka.tasks import Flag

DRAIN_S = 5.0
"""How long the running application may drain before the next one starts."""
NAMED = 5
"""How many changed files the log names."""
SETTINGS = (".toml", ".yaml", ".yml", ".json", ".properties")
"""Endings of files that are watched, besides those of Python."""

logger = logging.getLogger("reactive_kafka")


def check_reload() -> None:
    """Raise MissingExtraError if the package that watches files is not installed."""
    if find_spec("watchfiles") is None:
        raise MissingExtraError("--reload", "reload")


class Reloader:
    """The parent of an application that is being written.

    Args:
        arguments: What the application's ``run`` is called with.
        folder: Python files and configuration files in it and below are watched.
        files: Configuration files, wherever they are.
    """

    def __init__(self, arguments: Sequence[str], folder: Path, files: Sequence[Path]) -> None:
        self._arguments = arguments
        self._folder = folder
        self._files = files
        self._process: WorkerProcess | None = None
        self._changed = Flag()
        self._stopping = Flag()

    async def run(self) -> int:
        """Run until a signal comes. Returns the exit code."""
        watching = [asyncio.create_task(watch) for watch in self._watches()]
        code = 0
        try:
            with handling(SIGNALS, self._signalled):
                while not self._stopping.is_set():
                    self._changed.clear()
                    code = await self._run_once()
        finally:
            for task in watching:
                task.cancel()
            await asyncio.wait(watching)
        return max(code, 0)

    async def _run_once(self) -> int:
        """Run the application until it has ended and something has changed."""
        process = await start_process(self._arguments)
        self._process = process
        if self._stopping.is_set():
            # The signal came before there was a process to pass it on to.
            process.send(signal.SIGTERM)
        ended = asyncio.create_task(process.end())
        await _first_of(asyncio.wait([ended]), self._changed.wait(), self._stopping.wait())
        if not ended.done() and not self._stopping.is_set():
            process.send(signal.SIGTERM)
            await asyncio.wait([ended], timeout=DRAIN_S)
            if not ended.done() and not self._stopping.is_set():
                logger.warning("the application has not drained within %g s", DRAIN_S)
                process.send(signal.SIGKILL)
        code = await ended
        self._process = None
        if not self._changed.is_set() and not self._stopping.is_set():
            logger.error(
                "the application has ended (%s): it starts again at the next change",
                how_ended(code),
            )
            await _first_of(self._changed.wait(), self._stopping.wait())
            # That it ended earlier is no failure of the stop.
            return 0
        return code

    def _watches(self) -> list[Coroutine[Any, Any, None]]:
        """Return what waits for changes."""
        from watchfiles import PythonFilter

        watches = [self._watch(self._folder, PythonFilter(extra_extensions=SETTINGS), True)]
        for file in self._files:
            if not file.is_relative_to(self._folder):
                # Editors replace a file by a new one, so its folder is watched.
                only = PythonFilter(extra_extensions=(str(file),))
                only.extensions = (str(file),)
                watches.append(self._watch(file.parent, only, False))
        return watches

    async def _watch(self, folder: Path, watched: Any, recursive: bool) -> None:
        from watchfiles import awatch

        try:
            async for changes in awatch(folder, watch_filter=watched, recursive=recursive):
                names = sorted(Path(path).name for _, path in changes)
                logger.info("changed: %s", ", ".join(names[:NAMED]))
                self._changed.set()
        except Exception as error:
            # The system may have no watch left for so many files, for example.
            logger.error("changes in %s are not noticed: %s", folder, describe(error))

    def _signalled(self, number: signal.Signals) -> None:
        """The first signal drains the application. A second one ends it at once."""
        if self._process is not None:
            self._process.send(signal.SIGKILL if self._stopping.is_set() else signal.SIGTERM)
        self._stopping.set()


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait for the first of several waits, and give up the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
