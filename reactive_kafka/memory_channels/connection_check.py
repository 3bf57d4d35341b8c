"""Checks that memory channels are fed, handled, and in no circle. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from reactive_kafka.config.settings import MemorySettings


class MemoryUse(NamedTuple):
    """The channels that one function is decorated with."""

    takes: tuple[str, ...]
    sends: tuple[str, ...]


def memory_problems(
    memory: Mapping[str, MemorySettings], uses: Sequence[MemoryUse], emitters: Collection[str]
) -> Iterator[str]:
    """Yield what keeps memory channels from working.

    Args:
        emitters: The channels that the application sends to with ``app.emitter()``.
    """
    fed = {name for use in uses for name in use.sends}.union(emitters)
    taken = {name for use in uses for name in use.takes}
    for name, settings in memory.items():
        if name not in fed:
            yield (
                f"{settings.place}: nothing sends to it: it needs an @app.outgoing({name!r}) or "
                f"app.emitter({name!r})"
            )
        if name not in taken:
            yield (
                f"{settings.place}: no handler takes its values: it needs an "
                f"@app.incoming({name!r})"
            )
    if circle := _circle(memory, uses):
        way = " -> ".join(f"[memory.{name}]" for name in circle)
        yield f"{memory[circle[0]].place}: {way} is a circle: each ack would wait for itself"


def _circle(memory: Collection[str], uses: Sequence[MemoryUse]) -> Sequence[str]:
    """Return the channels on a way from one of them back to it. Empty: there is no such way."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for use in uses:
        takes = [name for name in use.takes if name in memory]
        for name in use.sends:
            if name in memory:
                sorter.add(name, *takes)
    try:
        sorter.prepare()
    except CycleError as error:
        return list(error.args[1])
    return ()
