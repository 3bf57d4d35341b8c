"""An application as a process: on a loop of its own, until a signal or a failure ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from reactive_kafka.config.schema import Settings
from reactive_kafka.handlers.threads import calls_in_threads
from reactive_kafka.runtime.run import Run
from reactive_kafka.runtime.signals import StopSignals, exit_now

logger = logging.getLogger("reactive_kafka")


def run_as_process(
    settings: Settings,
    make: Callable[[], Run],
    *,
    start: Callable[[Run], Awaitable[None]],
    stop: Callable[[], Awaitable[None]],
) -> None:
    """Run an application until SIGINT or SIGTERM, a failure, or a handler's SystemExit.

    Args:
        make: Makes the run that *start* starts, on the loop: a signal may come while it is starting.

    Raises:
        SystemExit: With its exit code, if that is not 0.
    """

    async def main() -> Run:
        run = make()
        # In the loop, not in the signal handler: that may run between any two steps of anything on this loop.
        ask_to_stop = partial(asyncio.get_running_loop().call_soon_threadsafe, run.ask_to_stop)
        drain_s = max((channel.drain_timeout_s for channel in settings.incoming.values()), default=0.0)
        with StopSignals(ask_to_stop, drain_s, lambda: run.lag.last_turn):
            await start(run)
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
