"""Judges dead letters and delayed retries: what was written where, from what, and when it was
handled. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from tests.faults.checker import Place, Violation
from tests.faults.history import Event, Partition

# Times of the broker are whole milliseconds.
CLOCK_S = 0.002


class Stored(NamedTuple):
    """A record as the broker holds it. ``t`` is its timestamp, in seconds."""

    t: float
    id: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


Log = Mapping[Partition, Mapping[int, Stored]]


def written_on(log: Log, onward: Sequence[Log], *, timed: bool) -> dict[Place, float]:
    """place -> when its record had been written to one of the topics *onward*; found by its id.

    Args:
        timed: Records there bear the broker's time of writing (``LogAppendTime``); if not, only
            that they are there counts, and the time is -inf.
    """
    first: dict[str, float] = {}
    for stored in _all(onward):
        first[stored.id] = min(first.get(stored.id, inf), stored.t if timed else -inf)
    return {
        (tp, offset): first[stored.id]
        for tp, records in log.items()
        for offset, stored in records.items()
        if stored.id in first
    }


def ids(logs: Sequence[Log]) -> set[str]:
    """Whose records these logs hold."""
    return {stored.id for stored in _all(logs)}


def unfaithful(origin: Log, letters: Log, *, on_the_way: Sequence[Log] = ()) -> Iterator[Violation]:
    """DL: a dead letter has the bytes, the key and the headers of its record, and says where and
    when it was written.

    Args:
        origin: The channel's topic.
        letters: The dead-letter topic.
        on_the_way: Other topics that the letter may say it comes from.
    """
    originals = {stored.id: stored for stored in _all([origin])}
    sources = [origin, *on_the_way]
    for tp, records in letters.items():
        for offset, letter in records.items():
            for problem in _differences(originals.get(letter.id), letter, sources):
                yield Violation(
                    "DL", f"{tp[0]}-{tp[1]}, offset {offset}, letter of {letter.id}: {problem}"
                )


def _differences(original: Stored | None, letter: Stored, sources: Sequence[Log]) -> Iterator[str]:
    if original is None:
        yield "nobody sent that"
        return
    if letter.value != original.value:
        yield f"the value was {original.value!r} and is {letter.value!r}"
    if letter.key != original.key:
        yield f"the key was {original.key!r} and is {letter.key!r}"
    missing = [header for header in original.headers if header not in letter.headers]
    if missing:
        yield f"the headers {missing} are gone"
    ours = dict(letter.headers)
    wanted = ("reason", "exception-class-name", "topic", "partition", "offset", "timestamp")
    absent = [name for name in wanted if not ours.get(f"dead-letter-{name}")]
    if absent:
        yield f"no header tells {absent}"
        return
    named = _named(ours, sources)
    if named is None or named.id != letter.id:
        yield "its headers point at another record"
    elif ours.get("dead-letter-timestamp") != b"%d" % round(named.t * 1000):
        yield f"its timestamp was {named.t} and its header is {ours.get('dead-letter-timestamp')!r}"


def _named(headers: Mapping[str, bytes], sources: Sequence[Log]) -> Stored | None:
    """The record that a letter says it was."""
    topic, partition, offset = (
        headers[f"dead-letter-{name}"].decode() for name in ("topic", "partition", "offset")
    )
    place = (topic, int(partition)), int(offset)
    records = (log.get(place[0], {}).get(place[1]) for log in sources)
    return next((record for record in records if record is not None), None)


def early(events: Iterable[Event], hops: Sequence[tuple[str, str, float]]) -> Iterator[Violation]:
    """DUE: a delayed record begins only when its delay has passed since it failed before.

    Args:
        hops: (topic it failed in, topic of the retry, delay in seconds). Of a record that failed
            several times there, as after a kill, the first time counts: it may be in the retry
                topic several times.
    """
    events = list(events)
    failed: dict[tuple[str, str], float] = defaultdict(lambda: inf)
    for event in events:
        if event.kind == "end" and event.outcome == "failed":
            where = event.tp[0], event.id
            failed[where] = min(failed[where], event.t)
    for event in events:
        for before, topic, delay_s in hops:
            if event.kind != "begin" or event.tp[0] != topic:
                continue
            waited = event.t - failed[before, event.id]
            if waited < delay_s - CLOCK_S:
                yield Violation(
                    "DUE",
                    f"{topic}-{event.tp[1]}: {event.id} began {waited:.3f} s after it failed, not {delay_s:g} s",
                )


def _all(logs: Sequence[Log]) -> Iterator[Stored]:
    return (stored for log in logs for records in log.values() for stored in records.values())
