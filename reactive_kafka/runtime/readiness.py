"""Asks the functions of ``@app.readiness`` again and again, so that no probe waits for them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextvars import Context
from functools import partial
from math import inf

from anyio import CapacityLimiter

from reactive_kafka.clock import Clock
from reactive_kafka.handlers.blocking_calls import as_async
from reactive_kafka.handlers.signature import name_and_place
from reactive_kafka.observe.events import HookFailed, Observer
from reactive_kafka.observe.facts import NOT_ASKED, ReadinessFacts
from reactive_kafka.tasks import Fails, Handle, NoEndError, Tasks, outcome_of, outcome_text
from reactive_kafka.verdicts.unawaited import checked_alone

ASKED_EVERY_S = 1.0
"""How long after an answer a function is called again."""
ANSWERED_WITHIN_S = 5.0
"""How long a function may take to answer."""
_NO_ANSWER = f"no answer in {ANSWERED_WITHIN_S:g} s"


class Readiness:
    """What one function has said last. No I/O, no clock."""

    def __init__(self) -> None:
        self._reason: str | None = NOT_ASKED
        # When the call began that has not ended (monotonic). None: none is running.
        self._asked_at: float | None = None

    def asked(self, now: float) -> None:
        """Note that a call has begun."""
        self._asked_at = now

    def answered(self, reason: str | None) -> None:
        """Note the end of the call, and why the application is not ready. None: it is."""
        self._asked_at = None
        self._reason = reason

    def reason(self, now: float) -> str | None:
        """Return why the application is not ready. None: it is."""
        if self._asked_at is not None and now - self._asked_at >= ANSWERED_WITHIN_S:
            # The call may still clean up, or its thread may run on.
            return _NO_ANSWER
        return self._reason


def reason_of(answer: object) -> str | None:
    """Return why the application is not ready, from what a function has returned."""
    if answer is None:
        return None
    if isinstance(answer, str):
        return answer.strip() or "no reason was given"
    # True may be meant as "ready", or as "there is a reason".
    kind = type(answer).__name__
    return f"the function returned an object of type {kind}, instead of None or a reason (str)"


class ReadinessChecks:
    """The functions of ``@app.readiness``, each called in a task of its own.

    Args:
        functions: Name -> function.
        exit: Called when a function asks the process to end.
    """

    def __init__(
        self,
        functions: Mapping[str, Callable[[], object]],
        clock: Clock,
        observer: Observer,
        exit: Callable[[BaseException], None],
    ) -> None:
        self._clock = clock
        self._checks = [
            _Check(name, function, clock, observer, exit) for name, function in functions.items()
        ]
        self._tasks: list[Handle | None] = []

    def start(self, tasks: Tasks, context: Context, fails: Fails) -> None:
        """Call all of them, from now on.

        Args:
            context: Each call runs in a copy of it.
            fails: Called with a bug in one of the tasks. What a function raises is a reason.
        """
        self._tasks = [
            tasks.start(partial(check.run, context), f"readiness {check.name}", fails)
            for check in self._checks
        ]

    def stop(self) -> None:
        """Call them no more."""
        for task in self._tasks:
            if task is not None:
                task.cancel()

    def facts(self, now: float) -> tuple[ReadinessFacts, ...]:
        """Return the last answers."""
        return tuple(ReadinessFacts(check.name, check.state.reason(now)) for check in self._checks)


class _Check:
    def __init__(
        self,
        name: str,
        function: Callable[[], object],
        clock: Clock,
        observer: Observer,
        exit: Callable[[BaseException], None],
    ) -> None:
        self.name = name
        self.state = Readiness()
        self._clock = clock
        self._observer = observer
        self._exit = exit
        self._function = function
        # Threads that calls run in. Nothing ends a thread, also when its answer is late.
        self._threads = 0
        # What the function has raised last. It is reported once, and not once a second.
        self._told: str | None = None
        is_blocking = not inspect.iscoroutinefunction(function)
        call = as_async(self._in_thread if is_blocking else function, CapacityLimiter(inf))
        who = f"the readiness function {name_and_place(function)}"
        self._call = checked_alone(call, who, in_thread=is_blocking)

    async def run(self, context: Context) -> None:
        while True:
            if not self._threads:
                self.state.asked(self._clock.monotonic())
                await self._ask(context.copy())
            await asyncio.sleep(ASKED_EVERY_S)

    async def _ask(self, context: Context) -> None:
        reason: str | None = None

        async def call() -> None:
            nonlocal reason
            reason = reason_of(await self._call())

        error = await outcome_of(call, f"readiness {self.name}", ANSWERED_WITHIN_S, context)
        if isinstance(error, NoEndError):
            reason = _NO_ANSWER
        elif error is not None:
            reason = outcome_text(error)
            self._tell(reason, error)
        else:
            self._told = None
        self.state.answered(reason)

    def _tell(self, text: str, error: BaseException) -> None:
        if isinstance(error, SystemExit | KeyboardInterrupt):
            self._exit(error)
        elif text != self._told:
            self._told = text
            hook = f"readiness {self.name!r}"
            self._observer.on(HookFailed(channel="*", hook=hook, reason=text, error=error))

    def _in_thread(self) -> object:
        self._threads += 1
        try:
            return self._function()
        finally:
            self._threads -= 1
