"""Time that a test turns: a clock, and an event loop that jumps instead of waiting."""

from __future__ import annotations

import asyncio
import random
import selectors
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from typing import Any, TypeVar, TypeVarTuple

from reactive_kafka.clock import Clock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NOVEMBER_2023 = 1_700_000_000.0
# Of asyncio's clock.
_RESOLUTION_S = 1e-9
# Real time: between looks at threads at work, and for each of their calls.
_LOOK_S = 0.001
_LONGEST_S = 1.0


class FakeClock(Clock):
    """A clock that moves only when told to.

    Args:
        monotonic: Where the monotonic clock begins, in seconds.
        wall: Where the wall clock begins, in seconds since the epoch.
    """

    __slots__ = ("_time",)
    _time: _Time

    def __init__(self, monotonic: float = 0.0, wall: float = NOVEMBER_2023) -> None:
        time = _Time(monotonic, wall)
        # The base class is frozen; what moves is the time in here.
        object.__setattr__(self, "_time", time)
        super().__init__(monotonic=lambda: time.monotonic, wall=lambda: time.wall)

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks.

        Raises:
            ValueError: Backwards: the monotonic clock never does that.
        """
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds:g} s")
        self._time.monotonic += seconds
        self._time.wall += seconds

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or a time server does; the monotonic
        one stays.
        """
        self._time.wall += seconds


@dataclass(slots=True)
class _Time:
    monotonic: float
    wall: float


class DeadlockError(RuntimeError):
    """Everything waits, and nothing will ever wake it: no timer is set and nothing is ready."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while anything runs, and jumps to the next timer when
    all wait.

    An hour of sleeping takes no time. It stands still, too, while a call is in a thread of
    asyncio's or anyio's, as blocking handlers are, though for no call longer than one second of
    real time. Nothing else outside the loop may be waited for: no sockets, no processes. When
    nothing can ever go on again, :class:`DeadlockError` is raised out of ``run_until_complete``.

    Args:
        clock: The clock that jumps; the loop's ``time()`` is its monotonic one.
        seed: Shuffles, before each turn, the order in which ready callbacks run, and draws by how
            much waits between attempts are shortened; None leaves asyncio's order, and such waits
            as long as they can be.
    """

    def __init__(self, clock: FakeClock | None = None, seed: int | None = None) -> None:
        self.clock = clock if clock is not None else FakeClock()
        self._shuffle = random.Random(seed).shuffle if seed is not None else None
        self._chance = random.Random(seed).random if seed is not None else None
        super().__init__(_JumpingSelector(self.clock, self._waits_for_threads))
        self._in_executor = set[object]()
        # Call -> the real time when it was seen first.
        self._since = dict[object, float]()

    def time(self) -> float:
        """The clock's monotonic time, in seconds."""
        return self.clock.monotonic()

    def chance(self) -> float:
        """Between 0 and 1: what :mod:`reactive_kafka.backoff` draws."""
        return 0.0 if self._chance is None else self._chance()

    def run_in_executor(
        self, executor: Any, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """asyncio's own; time stands still until the call has returned."""
        future = super().run_in_executor(executor, func, *args)
        self._in_executor.add(future)
        future.add_done_callback(self._in_executor.discard)
        return future

    async def shutdown_default_executor(self, *timeout: Any) -> None:
        """asyncio's own, which waits for a thread."""
        self._in_executor.add(self)
        try:
            await super().shutdown_default_executor(*timeout)
        finally:
            self._in_executor.discard(self)

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """asyncio's own. By it a worker of anyio says that its call is over."""
        if isinstance(worker := getattr(callback, "__self__", None), threading.Thread):
            # Its next call is another.
            self._since.pop(worker, None)
        return super().call_soon_threadsafe(callback, *args, context=context)

    def _waits_for_threads(self) -> bool:
        """Whether a call in a thread has not taken long yet. Others may wait for what time
        brings.
        """
        now = time.monotonic()
        # anyio tells nobody what its threads do; they have these attributes since version 3
        workers: list[Any] = [
            one for one in threading.enumerate() if getattr(one, "loop", None) is self
        ]
        working = [
            one for one in workers if getattr(getattr(one, "queue", None), "unfinished_tasks", 0)
        ]
        self._since = {one: self._since.get(one, now) for one in (*self._in_executor, *working)}
        return any(now - since < _LONGEST_S for since in self._since.values())

    # Asyncio's own name for one turn of the loop.
    def _run_once(self) -> None:
        self._reach_what_is_all_but_due()
        ready: Any = self._ready  # type: ignore[attr-defined]
        if self._shuffle is not None and len(ready) > 1:
            order = list(ready)
            self._shuffle(order)
            ready.clear()
            ready.extend(order)
        super()._run_once()  # type: ignore[misc]

    def _reach_what_is_all_but_due(self) -> None:
        """asyncio fires timers up to its clock's resolution early; who then waits for the rest
        would do so for ever.

        Real time passes while code runs. This one does not, so it is moved to where the timer
        thinks it is.
        """
        timers: Any = self._scheduled  # type: ignore[attr-defined]
        if timers and 0 < timers[0].when() - self.time() <= _RESOLUTION_S:
            self.clock.advance(_RESOLUTION_S)


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, clock: FakeClock, waits_for_threads: Callable[[], bool]) -> None:
        super().__init__()
        self._clock = clock
        self._waits_for_threads = waits_for_threads

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; when nothing is, threads at work are waited for, and then the clock
        jumps by *timeout*.
        """
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        while self._waits_for_threads():
            if ready := super().select(_LOOK_S):
                return ready
        if timeout is None:
            # Of a call that was given up, or another thread.
            if ready := super().select(_LONGEST_S):
                return ready
            raise DeadlockError("every task waits, and no timer is set that could wake one")
        self._clock.advance(timeout)
        return ready


def run_in_virtual_time(
    main: Callable[[FakeClock], Coroutine[Any, Any, T]],
    *,
    seed: int | None = None,
    clock: FakeClock | None = None,
) -> T:
    """Run ``main(clock)`` on a :class:`VirtualTimeLoop` of its own, and return what it returns.

    Raises:
        DeadlockError: It can never end.
    """
    turned = clock if clock is not None else FakeClock()
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(turned, seed)) as runner:
        return runner.run(main(turned))
