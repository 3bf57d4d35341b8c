"""What a forked child may do with the copy of an application that it got: nothing.

A handler that forks copies the event loop, its tasks and its connections. A child that came back to that loop would
commit, beat and write as the member that its parent is, over the same sockets. Nothing looks for that while records
are handled: whoever has something to keep from children says so here, and is called in the child, before it goes on.
A child that never comes back (multiprocessing, ``subprocess`` with a ``preexec_fn``) hears of it as well, and may run
an application of its own: only what is the parent's is to be taken away.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_calls: list[Callable[[], None]] = []


def call_in_children(call: Callable[[], None]) -> None:
    """Have *call* called in each process that is forked from this one."""
    _calls.append(call)


@contextmanager
def called_in_children(call: Callable[[], None]) -> Iterator[None]:
    """The same, for those that are forked while the block runs."""
    _calls.append(call)
    try:
        yield
    finally:
        _calls.remove(call)


def _in_child() -> None:
    for call in tuple(_calls):
        call()


if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=_in_child)
