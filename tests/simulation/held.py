"""What an application holds: the sizes of all collections, and the number of objects, that can be
reached from it.
"""

from __future__ import annotations

import asyncio
import functools
import gc
from array import array
from collections import Counter, deque
from collections.abc import Iterator
from contextvars import Context
from itertools import pairwise
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

PACKAGE = "reactive_kafka"
OTHERS = (
    "reactive_kafka.broker.memory",
    "reactive_kafka.testing",
    "reactive_kafka.checkpoint.stores",
    "tests",
    "unittest",
    "pytest",
    "_pytest",
    "logging",
    "reactive_kafka.observe.bursts",
    "reactive_kafka.observe.logs",
    "reactive_kafka.observe.events",
    "reactive_kafka.observe.recent_events",
    "reactive_kafka.observe.record_pasts",
)
"""Where the application ends: the broker, the store, those who watch it; and its log, its last
events, and what it remembers of records, which have bounds of their own.
"""
NOISE = 2
COMES_AND_GOES = {
    # workers are made when they are needed, as many as ``concurrency``, and each has its task
    "delivery.workers.worker.Worker": 6,
    "delivery.workers.worker.Worker.left": 6,
    "delivery.workers.places.WorkerPlaces._idle": 6,
    "tasks.Handle": 6,
    "tasks.Tasks._running": 6,
    # a lane keeps the last records that it got
    "delivery.lanes.lane.Lane.records": 12,
    "delivery.ages.Ages._polls": 12,
}
"""How much the sizes of others than these differ from one rest to the next; and those of these."""
ATOMS = (
    str,
    bytes,
    int,
    float,
    bool,
    type(None),
    type,
    ModuleType,
    CodeType,
    Context,
    asyncio.AbstractEventLoop,
)
SIZED = (dict, list, set, deque, bytearray, array)


class Held(NamedTuple):
    """What was found.

    Attributes:
        sizes: ``module.Class`` -> how many there are; ``module.Class.attribute`` -> the sizes of
            these collections together. A collection in a collection counts under the name of the
            outer one, followed by ``[]``.
        over: Names of collections that hold a task which has ended: whoever put it there has
            forgotten it.
    """

    sizes: Counter[str]
    over: frozenset[str]


def held(*roots: object) -> Held:
    """Walk through all that can be reached from these objects, as far as it is the
    application's.
    """
    sizes, over = Counter[str](), set[str]()
    seen = set[int]()
    todo: list[tuple[Any, str]] = [(one, "") for one in roots]
    # So that no other object gets the id of one that was seen.
    kept = []
    while todo:
        one, name = todo.pop()
        if name.endswith("[]") and isinstance(one, asyncio.Task) and one.done():
            over.add(name.removesuffix("[]"))
        if isinstance(one, ATOMS) or id(one) in seen or type(one).__module__.startswith(OTHERS):
            continue
        seen.add(id(one))
        kept.append(one)
        if isinstance(one, SIZED) and name:
            sizes[name] += len(one)
        todo += _parts(one, name, sizes)
    return Held(sizes, frozenset(over))


def _parts(one: Any, name: str, sizes: Counter[str]) -> Iterator[tuple[Any, str]]:
    kind = type(one)
    if kind.__module__.startswith(PACKAGE):
        own = f"{kind.__module__.removeprefix(PACKAGE + '.')}.{kind.__qualname__}"
        sizes[own] += 1
        for attribute, value in _attributes(one):
            yield value, f"{own}.{attribute}"
    inner = f"{name}[]" if name else ""
    # Copies, because a thread that ends may change what is looked at.
    if isinstance(one, dict):
        for key, value in list(one.items()):
            yield key, inner
            yield value, inner
    elif isinstance(one, list | tuple | set | frozenset | deque):
        for value in list(one):
            yield value, inner
    elif isinstance(one, MethodType):
        yield one.__self__, ""
    elif isinstance(one, functools.partial):
        yield from ((each, "") for each in (one.func, *one.args, *one.keywords.values()))
    elif isinstance(one, FunctionType):
        yield from ((cell, "") for cell in (one.__closure__ or ()))
    elif not kind.__module__.startswith(PACKAGE):
        # Tasks, coroutines, futures, cells, exceptions.
        yield from ((each, "") for each in gc.get_referents(one))


def _attributes(one: object) -> Iterator[tuple[str, Any]]:
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            name = f"_{kind.__name__.lstrip('_')}{slot}" if slot.startswith("__") else slot
            if (value := getattr(one, name, None)) is not None:
                yield name, value
    yield from getattr(one, "__dict__", {}).items()
    if isinstance(one, BaseException):
        yield from (
            ("", each) for each in (one.__traceback__, one.__cause__, one.__context__, one.args)
        )


def timers(loop: asyncio.AbstractEventLoop) -> Counter[str]:
    """The package's own timers that are set: what they will call -> how many."""
    found = Counter[str]()
    for handle in getattr(loop, "_scheduled", ()):
        callback = handle._callback
        while isinstance(callback, functools.partial):
            callback = callback.func
        module = getattr(callback, "__module__", None) or ""
        if not handle.cancelled() and module.startswith(PACKAGE) and not module.startswith(OTHERS):
            found[f"{module.removeprefix(PACKAGE + '.')}.{callback.__qualname__}"] += 1
    return found


def grows(sizes: list[Counter[str]], warm: int = 2) -> list[str]:
    """What grows from one rest to the next; the first *warm* of them fill caches.

    It never becomes much less, and in the last third it is more than it was in the first third.
    """
    counted = sizes[warm:]
    third = max(1, len(counted) // 3)
    found = []
    for name in sorted({name for one in counted for name in one}):
        noise = COMES_AND_GOES.get(name, NOISE)
        each = [one[name] for one in counted]
        if any(after < before - noise for before, after in pairwise(each)):
            continue
        if min(each[-third:]) > max(each[:third]) + noise:
            found.append(f"{name} grows: {[one[name] for one in sizes]}")
    return found
