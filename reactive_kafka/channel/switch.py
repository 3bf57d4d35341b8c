"""Stops and starts one channel by hand, while the application runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING

from reactive_kafka.assignment.rebalance_hooks import HOOK
from reactive_kafka.delivery.current import WORKER
from reactive_kafka.errors import ChannelClosedError

if TYPE_CHECKING:
    from reactive_kafka.channel.lifecycle import ChannelLifecycle

BY_APPLICATION = "stopped by the application"
"""Why a channel is stopped that was stopped by hand."""


class Switch:
    """Stops and starts a channel, one after the other, each in a task of its own.

    So a caller that is cancelled leaves no half-done stop.
    """

    def __init__(self, channel: ChannelLifecycle) -> None:
        self._channel = channel
        # Channels are started in it. A handler that starts one would pass on its own context.
        self._context = copy_context()
        self._turn = asyncio.Lock()
        # Stops and starts that were asked for and have not ended.
        self._open: list[asyncio.Task[None]] = []

    async def stop(self, *, from_thread: bool) -> None:
        """Stop the channel, as ``Channel.stop`` does.

        Args:
            from_thread: The call came from another thread than that of the application's loop.
        """
        if self._channel.status.is_taking and not self._open:
            # At once: a caller inside the channel cannot wait for the stop itself.
            self._channel.session.clients.take_nothing_new()
        await self._take(self._stop, "stop", from_thread=from_thread)

    async def start(self, *, from_thread: bool) -> None:
        """Start a channel that does not run. Raises as ``Channel.start`` does."""
        status = self._channel.status
        name = self._channel.name
        if not status.is_ending:
            await self._take(self._start, "start", from_thread=from_thread)
        if status.is_ending:
            raise ChannelClosedError(f"channel {name!r} cannot start: the application is stopping")

    async def restart(self, *, from_thread: bool) -> None:
        """Restart the channel if it has failed. Raises as ``Channel.restart`` does."""
        channel = self._channel
        is_inside = _is_called_from(channel.name, channel.session.workers, from_thread=from_thread)
        if is_inside and channel.status.state == "failed" and not channel.status.is_ending:
            # The failed channel waits for its handlers and hooks until it has left its group.
            await self._take(self._start, "restart", from_thread=from_thread)
        else:
            await channel.restart()

    async def over(self, within_s: float) -> None:
        """Wait until all stops and starts are done, at most *within_s*."""
        if self._open:
            await asyncio.wait(list(self._open), timeout=max(0.0, within_s))

    async def _take(
        self, change: Callable[[], Awaitable[None]], what: str, *, from_thread: bool
    ) -> None:
        """Make a change after those that were asked for before, and wait for it.

        A handler or a hook of the channel does not wait: the channel waits for it.
        """
        channel = self._channel

        async def run() -> None:
            async with self._turn:
                await change()

        def fails(error: BaseException) -> None:
            channel.report_failed_end(f"{what} by hand", error)

        is_inside = _is_called_from(channel.name, channel.session.workers, from_thread=from_thread)
        handle = self._context.copy().run(
            channel.services.tasks.start, run, f"{what} of {channel.name}", fails
        )
        # There are no tasks any more once the application has ended.
        if handle is None:
            return
        self._open.append(handle.task)
        handle.task.add_done_callback(self._open.remove)
        if not is_inside:
            await asyncio.wait([handle.task])

    async def _stop(self) -> None:
        channel = self._channel
        status = self._channel.status
        if status.is_ending or status.state == "stopped":
            return
        status.stop_for(BY_APPLICATION)
        deadline = channel.services.clock.monotonic() + channel.settings.drain_timeout_s
        # The stack takes every step, whatever the others raise, the last one pushed first.
        async with AsyncExitStack() as steps:
            steps.callback(channel.stopped_by_hand)
            steps.push_async_callback(channel.release_and_leave, deadline)
            await channel.drain(deadline)

    async def _start(self) -> None:
        channel = self._channel
        status = self._channel.status
        if status.state == "failed":
            # It is raised if the application stops. start() raises that itself.
            with suppress(ChannelClosedError):
                await channel.restart()
        if status.state == "stopped":
            await channel.session.workers.over()
        if status.is_ending:
            return
        if status.state == "starting":
            channel.start()
        elif status.state == "stopped":
            status.forget_attempts()
            channel.start_new_session()


def _is_called_from(channel: str, workers: object, *, from_thread: bool) -> bool:
    """Return whether a handler or a hook of a channel calls, and not a task that it has started.

    A call from a thread is that of a blocking handler: it has the handler's context, and a task of
    its own.
    """
    task = asyncio.current_task()
    worker = WORKER.get(None)
    hook = HOOK.get()
    if worker is not None and worker.pool is workers and (from_thread or worker.task is task):
        return True
    return hook is not None and hook[0] == channel and (from_thread or hook[1] is task)
