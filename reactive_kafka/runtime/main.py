"""An application as a process: on a loop of its own, until a signal or a failure ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from reactive_kafka.config.schema import Settings
from reactive_kafka.handlers.threads import calls_in_threads
from reactive_kafka.runtime.run import Run
from reactive_kafka.runtime.signals import StopSignals, exit_now

logger = logging.getLogger("reactive_kafka")


def run_as_process(
    settings: Settings,
    *,
    start: Callable[[], Awaitable[Run]],
    stop: Callable[[], Awaitable[None]],
    current: Callable[[], Run | None],
) -> None:
    """Run an application until SIGINT or SIGTERM, a failure, or a handler's SystemExit.

    Args:
        current: The run of the moment, also while it is starting: a signal may come before *start* has returned.

    Raises:
        SystemExit: With its exit code, if that is not 0.
    """

    async def main() -> Run:
        loop = asyncio.get_running_loop()
        turned = loop.time()

        # In the loop, not in the signal handler: that may run between any two steps of anything on this loop.
        def stop_current() -> None:
            if (run := current()) is not None:
                run.ask_to_stop()

        def last_turn() -> float:
            run = current()
            return turned if run is None else run.lag.last_turn

        drain_s = max((channel.drain_timeout_s for channel in settings.incoming.values()), default=0.0)
        with StopSignals(lambda: loop.call_soon_threadsafe(stop_current), drain_s, last_turn):
            run = await start()
            logger.info(
                "started: configuration %s, brokers %s, %d incoming and %d outgoing channels, HTTP %s",
                settings.source,
                settings.bootstrap_servers,  # hosts and ports, nothing secret
                len(settings.incoming),
                len(settings.outgoing),
                run.http.url if run.http is not None else "off",
            )
            await run.wait_asked()
            await stop()
        return run

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        run = runner.run(main())
        code = run.exit_code()
        if run.left or calls_in_threads():
            exit_now(code)  # closing the loop, or the interpreter, would wait for them
    if code:
        raise SystemExit(code)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's if it is installed (the extra ``fast``)."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
