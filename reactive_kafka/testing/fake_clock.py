"""Virtual time for tests: a clock that tests move, and an event loop that jumps over waits."""

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
# asyncio fires a timer when it is due within its clock's resolution.
_RESOLUTION_S = 1e-9
# Both are real time: the pause between two looks at busy threads, and how long the virtual time
# waits for one call in a thread.
_THREAD_POLL_S = 0.001
_LONGEST_THREAD_CALL_S = 1.0


class FakeClock(Clock):
    """A clock that moves only when a test moves it.

    Args:
        monotonic: First time of the monotonic clock, in seconds.
        wall: First time of the wall clock, in seconds since the epoch.
    """

    __slots__ = ("_time",)
    _time: _Time

    def __init__(self, monotonic: float = 0.0, wall: float = NOVEMBER_2023) -> None:
        time = _Time(monotonic, wall)
        # The base class is frozen, so the time that moves is an object of its own.
        object.__setattr__(self, "_time", time)
        super().__init__(monotonic=lambda: time.monotonic, wall=lambda: time.wall)

    def advance(self, seconds: float) -> None:
        """Move both clocks forward.

        Raises:
            ValueError: *seconds* is negative. The monotonic clock never goes back.
        """
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds:g} s")
        self._time.monotonic += seconds
        self._time.wall += seconds

    def jump_wall(self, seconds: float) -> None:
        """Move only the wall clock, forward or back, as an operator or a time server does."""
        self._time.wall += seconds


@dataclass(slots=True)
class _Time:
    """The present of a :class:`FakeClock`, in seconds."""

    monotonic: float
    wall: float


class DeadlockError(RuntimeError):
    """Every task waits, and nothing can wake one: no timer is set and no callback is ready."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time: when all tasks wait, time jumps to the next timer.

    An hour of sleeping takes no real time. Time stands still while code runs. It also stands still
    while a thread of asyncio or anyio runs a call, as it does for blocking handlers, but for at
    most one second of real time per call. Tasks must not wait for anything else outside the loop:
    no sockets, no processes. When no task can ever continue, ``run_until_complete`` raises
    :class:`DeadlockError`.

    Args:
        clock: The clock that jumps. The loop's ``time()`` is its monotonic time.
        seed: Shuffles the order of ready callbacks before each turn of the loop, and draws by how
            much the waits between attempts are shortened. None keeps asyncio's order and the
            longest waits.
    """

    def __init__(self, clock: FakeClock | None = None, seed: int | None = None) -> None:
        self.clock = clock if clock is not None else FakeClock()
        self._shuffle: Callable[[list[Any]], None] | None = None
        self._chance: Callable[[], float] | None = None
        if seed is not None:
            self._shuffle = random.Random(seed).shuffle
            self._chance = random.Random(seed).random
        super().__init__(_JumpingSelector(self.clock, self._waits_for_threads))
        self._in_executor = set[object]()
        # Call in a thread -> the real time when it was seen first.
        self._first_seen = dict[object, float]()

    def time(self) -> float:
        """The clock's monotonic time, in seconds."""
        return self.clock.monotonic()

    def chance(self) -> float:
        """Return a number from 0 to 1, which :mod:`reactive_kafka.backoff` asks the loop for."""
        return 0.0 if self._chance is None else self._chance()

    def run_in_executor(
        self, executor: Any, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run a call in a thread, as asyncio does; time stands still until it has returned."""
        future = super().run_in_executor(executor, func, *args)
        self._in_executor.add(future)
        future.add_done_callback(self._in_executor.discard)
        return future

    async def shutdown_default_executor(self, *timeout: Any) -> None:
        """Shut down as asyncio does; time stands still meanwhile, since this waits for a thread."""
        self._in_executor.add(self)
        try:
            await super().shutdown_default_executor(*timeout)
        finally:
            self._in_executor.discard(self)

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback as asyncio does, and note that a thread's call is over.

        A worker thread of anyio reports the end of its call here.
        """
        worker = getattr(callback, "__self__", None)
        if isinstance(worker, threading.Thread):
            # The next call of this thread may take another second.
            self._first_seen.pop(worker, None)
        return super().call_soon_threadsafe(callback, *args, context=context)

    def _waits_for_threads(self) -> bool:
        """True while a call in a thread has run for less than a second of real time.

        Time does not wait for longer ones: such a call may itself wait for a later time.
        """
        now = time.monotonic()
        # anyio has no public way to ask what its worker threads do. They have had the attributes
        # `loop` and `queue` since version 3.
        workers: list[Any] = [
            thread for thread in threading.enumerate() if getattr(thread, "loop", None) is self
        ]
        busy = [
            thread
            for thread in workers
            if getattr(getattr(thread, "queue", None), "unfinished_tasks", 0)
        ]
        self._first_seen = {
            call: self._first_seen.get(call, now) for call in (*self._in_executor, *busy)
        }
        return any(now - seen < _LONGEST_THREAD_CALL_S for seen in self._first_seen.values())

    # asyncio's name for one turn of the loop.
    def _run_once(self) -> None:
        self._reach_timer_within_resolution()
        ready: Any = self._ready  # type: ignore[attr-defined]
        if self._shuffle is not None and len(ready) > 1:
            order = list(ready)
            self._shuffle(order)
            ready.clear()
            ready.extend(order)
        super()._run_once()  # type: ignore[misc]

    def _reach_timer_within_resolution(self) -> None:
        """Move the clock to the next timer if that is due within the clock's resolution.

        asyncio fires such a timer early. With real time the rest passes while code runs. Virtual
        time does not pass then, so code that waits for the rest would wait for ever.
        """
        timers: Any = self._scheduled  # type: ignore[attr-defined]
        if timers and 0 < timers[0].when() - self.time() <= _RESOLUTION_S:
            self.clock.advance(_RESOLUTION_S)


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that moves a clock instead of waiting."""

    def __init__(self, clock: FakeClock, waits_for_threads: Callable[[], bool]) -> None:
        super().__init__()
        self._clock = clock
        self._waits_for_threads = waits_for_threads

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; if nothing is, wait for busy threads, then jump by *timeout*."""
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        while self._waits_for_threads():
            ready = super().select(_THREAD_POLL_S)
            if ready:
                return ready
        if timeout is None:
            # No timer is set. The loop may still be woken by a call that took too long to be
            # waited for above, or by a thread that is not asyncio's or anyio's.
            ready = super().select(_LONGEST_THREAD_CALL_S)
            if ready:
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
    """Run ``main(clock)`` on a new :class:`VirtualTimeLoop`, and return its result.

    Raises:
        DeadlockError: Every task waits, and no timer is set.
    """
    used = clock if clock is not None else FakeClock()
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(used, seed)) as runner:
        return runner.run(main(used))
