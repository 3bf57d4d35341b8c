"""A forked child that comes back to the application's event loop ends there, before anything else
runs.

A handler that forks copies the loop, its tasks and its connections: the child would handle and
commit as its parent. We are called in each child, also those that never come back (multiprocessing)
and may run an application of their own.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident

_runs: list[Callable[[], None]] = []


@contextmanager
def no_children(hold: Callable[[], None]) -> Iterator[None]:
    """Have children that come back end, while the block runs. *hold* keeps workers from what they
    would take next.
    """
    loop = asyncio.get_running_loop()
    thread = get_ident()
    parent = os.getpid()

    def in_child() -> None:
        if get_ident() != thread:
            # A handler in a thread has forked: there is no thread in the child that turns the loop.
            return
        hold()
        # What was ready in this turn would run before. uvloop does not let us forget it: there are
        # no connections then.
        ready = getattr(loop, "_ready", None)
        if isinstance(ready, deque):
            ready.clear()
        loop.call_soon(_end, parent)

    _runs.append(in_child)
    try:
        yield
    finally:
        _runs.remove(in_child)


def _end(parent: int) -> None:
    said = (
        f"reactive_kafka: process {os.getpid()} was forked from {parent}, whose event loop it has come back to: it "
        "ends here. Let a child end by os._exit(), or start it with subprocess or multiprocessing\n"
    )
    os.write(2, said.encode())
    # No cleanup: files, buffers and connections are the parent's.
    os._exit(1)


# Elsewhere nothing forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [run() for run in _runs])
