"""Ends a forked child that returns to the event loop, before anything of the application runs.

A handler that forks copies the loop, its tasks and its connections. The child would handle and
commit records as its parent does. Python calls this module in each child, also in those that never
return to the loop (multiprocessing) and may run an application of their own.
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
    """End children that return to this event loop, while the block runs.

    Args:
        hold: Called in a child. It keeps workers from taking records.
    """
    loop = asyncio.get_running_loop()
    thread = get_ident()
    parent = os.getpid()

    def in_child() -> None:
        if get_ident() != thread:
            # A handler in a worker thread has forked. Nothing runs the event loop in the child.
            return
        hold()
        # Callbacks that are ready would run before _end(). The queue of uvloop cannot be cleared,
        # but with uvloop a child has no connections.
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
    text = (
        f"reactive_kafka: process {os.getpid()} was forked from {parent}, whose event loop it has "
        "come back to: it ends here. Let a child end by os._exit(), or start it with subprocess or "
        "multiprocessing\n"
    )
    os.write(2, text.encode())
    # Without cleanup: files, buffers and connections belong to the parent.
    os._exit(1)


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [run() for run in _runs])
