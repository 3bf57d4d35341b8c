"""How much an application holds: every object that can be reached from it, by class, and what its
collections hold.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import types
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

CONTAINERS = (dict, list, set, frozenset, tuple, deque, bytearray, array)

NOT_OURS = (
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    types.CodeType,
    asyncio.AbstractEventLoop,
    threading.Thread,
)
"""Behind these lies the rest of the process."""


def sizes(root: object, beside: Iterable[str]) -> Counter[str]:
    """Label -> how many objects of a class there are, and how many items the collections under a
    name hold.

    Args:
        root: Where to begin.
        beside: Modules whose objects are passed over: what they hold is the test's own.
    """
    found = Counter[str]()
    for one, name in reachable(root, beside):
        kind = type(one)
        if isinstance(one, CONTAINERS):
            found[f"items in {name}"] += len(one)
        elif kind.__module__ != "builtins":
            found[f"objects of {kind.__module__}.{kind.__qualname__}"] += 1
        elif isinstance(
            one, types.FrameType | types.TracebackType | types.CoroutineType | types.MethodType
        ):
            found[f"objects of {kind.__name__}"] += 1
    return found


def kept_frames(root: object, beside: Iterable[str]) -> list[str]:
    """Where an error is kept together with the frames that it went through, and all that these
    hold.
    """
    return [
        f"{name}: {one!r}"
        for one, name in reachable(root, beside)
        if (isinstance(one, BaseException) and one.__traceback__ is not None)
        or (isinstance(one, types.TracebackType) and name in ("Future.*", "Task.*"))
    ]


def reachable(root: object, beside: Iterable[str]) -> Iterator[tuple[Any, str]]:
    """Every object that can be reached, with a label that says where it was found first."""
    beside = tuple(beside)
    seen = {id(root)}
    todo: deque[tuple[Any, str]] = deque([(root, type(root).__name__)])
    while todo:
        one, name = todo.popleft()
        yield one, name
        for held, label in _held_by(one, name):
            if (
                id(held) in seen
                or isinstance(held, NOT_OURS)
                or type(held).__module__.startswith(beside)
            ):
                continue
            if gc.is_tracked(held) or isinstance(held, CONTAINERS):
                seen.add(id(held))
                todo.append((held, label))


def _held_by(one: Any, name: str) -> Iterator[tuple[Any, str]]:
    """What an object holds, each with a label that says where."""
    # Its globals are its module's.
    if isinstance(one, types.FunctionType):
        for cell in one.__closure__ or ():
            yield cell, f"closure of {one.__qualname__}"
        return
    if isinstance(one, CONTAINERS):
        for held in gc.get_referents(one):
            yield held, f"{name}[]"
        return
    kind = type(one)
    if kind.__module__ != "builtins":
        for slot in {slot for base in kind.__mro__ for slot in getattr(base, "__slots__", ())}:
            held = getattr(one, slot, None)
            yield held, f"{kind.__qualname__}.{slot}"
        for slot, held in getattr(one, "__dict__", {}).items():
            yield held, f"{kind.__qualname__}.{slot}"
    where = name if kind is types.CellType else kind.__qualname__
    for held in gc.get_referents(one):
        yield held, f"{where}.*"


def grown(before: Counter[str], after: Counter[str], least: int) -> dict[str, int]:
    """What has grown by *least* or more."""
    return {
        label: count - before[label]
        for label, count in sorted(after.items())
        if count - before[label] >= least
    }
