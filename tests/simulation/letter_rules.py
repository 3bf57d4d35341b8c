"""What the checker holds about dead letters and delayed retries: their contents, and how many there
are. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.simulation.checker import (
    NEVER,
    Headers,
    History,
    Letter,
    Place,
    Rule,
    Stored,
    Violation,
    _name,
    _spans,
    unsure_sends,
)

SPEAKS_OF_FAILURE = ("exception-class-name", "reason")
"""Headers that each letter has besides those of its origin."""
OF_ORIGIN = ("topic", "partition", "offset")
OURS = ("dead-letter-", "delayed-retry-", "deserialization-failure-")


def _contents(history: History) -> Iterator[Violation]:
    """I13: a letter and a retry are the record: its value, its key, its headers; with ours once
    each, and these true.

    None names a cause where the handler's exception had none, as the attempt before it is none. A
    cancellation is the cause of the timeout of an attempt.
    Where the log has lost the record, nobody knows what it held.
    """
    for letter in history.case.letters:
        tp, offset = letter.ended
        stored = history.case.log.get(tp, {}).get(offset)
        if stored is None or history.records[letter.ended].compacted < letter.at:
            continue
        for wrong in _wrong_in(letter, stored, _origin_of(history, stored, letter.ended)):
            yield Violation(
                "I13", f"{_name(tp)}: {wrong} in what was written for {offset}", letter.at
            )
        has_cause = any(name == f"{letter.prefix}-cause" for name, _ in letter.headers)
        may_have = history.promise.spark or history.promise.store or history.promise.limits_attempts
        if has_cause and stored.readable and not may_have:
            yield Violation(
                "I13", f"{_name(tp)}: a cause in what was written for {offset}", letter.at
            )


def _origin_of(history: History, stored: Stored, place: Place) -> Place:
    """Where a record stood first: a retry was copied once or more."""
    origins: dict[str, Place] | None = history.memo.get("origins")
    if origins is None:
        origins = {
            one.id: (tp, offset)
            for tp, log in history.case.log.items()
            if tp[0] not in history.promise.out_of_order
            for offset, one in log.items()
        }
        history.memo["origins"] = origins
    return origins.get(stored.id, place)


def _wrong_in(letter: Letter, stored: Stored, origin: Place) -> Iterator[str]:
    if letter.value != stored.value:
        yield f"the value {letter.value!r}, not {stored.value!r},"
    if letter.key != (None if stored.key is None else stored.key.encode()):
        yield f"the key {letter.key!r}, not {stored.key!r},"
    theirs = _not_ours(letter.headers)
    if theirs != _not_ours(stored.headers):
        yield f"the headers {theirs}, not {_not_ours(stored.headers)},"
    ours: dict[str, list[bytes | None]] = defaultdict(list)
    for name, value in letter.headers:
        ours[name].append(value)
    (topic, partition), offset = origin
    for name, value in zip(OF_ORIGIN, (topic, str(partition), str(offset)), strict=True):
        if ours[f"{letter.prefix}-{name}"] != [value.encode()]:
            yield f"{letter.prefix}-{name} {ours[f'{letter.prefix}-{name}']}, not {value},"
    for name in SPEAKS_OF_FAILURE:
        if len(ours[f"{letter.prefix}-{name}"]) != 1:
            yield f"{letter.prefix}-{name} {ours[f'{letter.prefix}-{name}']}"


def _not_ours(headers: Headers) -> Headers:
    return tuple((name, value) for name, value in headers if not name.startswith(OURS))


def _number(history: History) -> Iterator[Violation]:
    """I14: there is one letter, or one copy, for each time that a record failed; a fault may make
    it two.

    A record fails that is not readable, that its handler fails with, or that is poison: its whole
    batch with it. Once sends have failed, nobody knows which of them were stored. A Spark batch of
    which the log has lost a part may be nacked before a function sees it.
    """
    spans, late = _spans(history), history.promise.window_s
    unsure = unsure_sends(history)
    is_lossy = history.promise.spark and any(
        "retention" in event.note for _, event in history.of("fault")
    )
    failed, written, fetched = Counter[Place](), Counter[Place](), Counter[Place]()
    calls: dict[int, list[Place]] = defaultdict(list)
    last: dict[Place, int] = {}
    counted: set[tuple[Place, int]] = set()
    for index, event in history.of("begin", "end", "poison", "fetched", "letter", "copy"):
        place = event.tp, event.offset
        if event.kind == "fetched":
            fetched.update((event.tp, offset) for offset in range(event.offset, event.until))
        elif event.kind == "begin":
            calls[event.call].append(place)
            last[place] = event.call
        elif event.kind == "poison":
            failed.update({*calls.get(last.get(place, 0), ()), place})
        elif event.kind == "end":
            fails = event.note == "failed" or (history.promise.spark and event.note != "ok")
            failed[place] += fails and (place, event.call) not in counted
            counted.add((place, event.call))
        else:
            written[place] += 1
            stored = history.case.log.get(event.tp, {}).get(event.offset)
            if stored is None or history.records[place].compacted != NEVER:
                continue
            times = failed[place] if stored.readable else fetched[place]
            excused = index > unsure or any(
                start - late <= event.at <= end + late for start, end in spans
            )
            if written[place] > times and not excused and not is_lossy:
                text = f"{_name(event.tp)}: {event.offset} has {written[place]} {event.kind}s, and failed {times} times"
                yield Violation("I14", text, index)


LETTER_RULES: list[Rule] = [_contents, _number]
