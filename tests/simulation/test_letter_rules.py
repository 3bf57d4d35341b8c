"""Hand-made dead letters and delayed retries: good ones, and for each promise some that break
it.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.checker import Case, Headers, Letter, Place, Promise, Stored, check
from tests.simulation.history import Event, Partition
from tests.simulation.test_checker import (
    LOG,
    TP,
    assigned,
    begin,
    broken,
    case,
    commit,
    end,
    handled,
)

RETRY: Partition = ("orders_retry_500", 0)
OWN: Headers = (
    ("trace", b"1"),
    ("tag", b"a"),
    ("tag", b"b"),
    ("none", None),
    ("dead-letter-topic", b"forged"),
)
THERE = {
    TP: {**LOG[TP], 0: Stored("a", "k1", value=b"A", headers=OWN), 1: Stored("b", None, value=None)}
}
FAILED = [begin(0), end(0, "failed"), Event(0.0, "letter", "", TP, 0)]
REST = [*handled(1, 2), *commit(3)]
FAILS = Promise(out_of_order=frozenset({RETRY[0]}))
"""What a run with dead letters promises."""


def headers(
    prefix: str = "dead-letter", offset: bytes = b"0", theirs: Headers = OWN[:4]
) -> Headers:
    ours = (
        (f"{prefix}-exception-class-name", b"E"),
        (f"{prefix}-reason", b"why"),
        (f"{prefix}-topic", b"orders"),
        (f"{prefix}-partition", b"0"),
        (f"{prefix}-offset", offset),
    )
    return (*ours, *theirs)


def letter(ended: Place = (TP, 0), **changed: Any) -> Letter:
    values = {
        "at": 3,
        "ended": ended,
        "prefix": "dead-letter",
        "value": b"A",
        "key": b"k1",
        "headers": headers(),
    }
    return Letter(**{**values, **changed})


def dead(*letters: Letter, events: list[Event] = FAILED, **changed: Any) -> Case:
    return case(
        assigned(), events, REST, **{"log": THERE, "promise": FAILS, "letters": letters, **changed}
    )


GOOD = {
    "a letter": dead(letter()),
    "a record without a key and a value": dead(
        letter((TP, 1), value=None, key=None, headers=headers(offset=b"1", theirs=())),
        events=[*handled(0), begin(1), end(1, "failed"), Event(0.0, "letter", "", TP, 1)],
    ),
    "the letter of a retry": dead(
        letter(prefix="delayed-retry", headers=headers("delayed-retry")),
        letter((RETRY, 0), headers=(*headers(), ("delayed-retry-count", b"1"))),
        log={**THERE, RETRY: {0: THERE[TP][0]}},
        log_end={TP: 3, RETRY: 1},
        committed={TP: 3, RETRY: 1},
        events=[
            begin(0),
            end(0, "failed"),
            Event(0.0, "copy", "", TP, 0),
            Event(0.0, "begin", "A1", RETRY, 0, "a", 50, 1),
            Event(0.0, "end", "A1", RETRY, 0, "failed", 50),
            Event(0.0, "letter", "", RETRY, 0),
        ],
    ),
    "two letters of a record that failed twice": dead(
        letter(),
        letter(),
        events=[
            *FAILED,
            Event(0.0, "fault", note="crash #1"),
            assigned("A2", 2),
            begin(0, who="A2", call=9),
            end(0, "failed", "A2", 9),
            Event(0.0, "letter", "", TP, 0),
            assigned("A1", 3),
        ],
    ),
    "a letter for each record of a batch of which one is poison": dead(
        letter(),
        letter((TP, 1), value=None, key=None, headers=headers(offset=b"1", theirs=())),
        events=[
            begin(0, call=7),
            begin(1, call=7),
            Event(0.0, "poison", "A1", TP, 0),
            end(0, "cancelled", call=7),
            end(1, "cancelled", call=7),
            Event(0.0, "letter", "", TP, 0),
            Event(0.0, "letter", "", TP, 1),
        ],
    ),
    "a letter that was written twice, for sends have failed": dead(
        letter(),
        letter(),
        events=[Event(0.0, "calm", note="send-fails #1"), *FAILED, Event(0.0, "letter", "", TP, 0)],
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_breaks_nothing(name: str) -> None:
    assert not {"I13", "I14"} & {str(one).partition(":")[0] for one in check(GOOD[name])}


BAD: dict[str, tuple[str, Case]] = {
    "a letter without a value": ("I13", dead(letter(value=None))),
    "a letter with another value": ("I13", dead(letter(value=b"B"))),
    "a letter without a key": ("I13", dead(letter(key=None))),
    "a letter without the record's headers": ("I13", dead(letter(headers=headers(theirs=())))),
    "a letter with one of its headers only": (
        "I13",
        dead(letter(headers=headers(theirs=(OWN[0], *OWN[2:4])))),
    ),
    "a letter that names another place": ("I13", dead(letter(headers=headers(offset=b"1")))),
    "a letter with a forged place beside the true one": (
        "I13",
        dead(letter(headers=headers(theirs=OWN))),
    ),
    "a letter without a reason": ("I13", dead(letter(headers=(headers()[0], *headers()[2:])))),
    "a letter that names a cause": (
        "I13",
        dead(letter(headers=(*headers(), ("dead-letter-cause", b"before")))),
    ),
    "a retry without a key": (
        "I13",
        dead(letter(prefix="delayed-retry", key=None, headers=headers("delayed-retry"))),
    ),
    "two letters of a record that failed once": (
        "I14",
        dead(letter(), letter(), events=[*FAILED, Event(0.0, "letter", "", TP, 0)]),
    ),
    "a letter of a record that was handled": (
        "I14",
        dead(letter(), events=[begin(0), end(0), Event(0.0, "letter", "", TP, 0)]),
    ),
    "two letters of an unreadable record that was fetched once": (
        "I14",
        dead(
            log={TP: {**THERE[TP], 0: Stored("a", "k1", readable=False)}},
            events=[
                Event(0.0, "fetched", "A1", TP, 0, until=3),
                *[Event(0.0, "letter", "", TP, 0)] * 2,
            ],
        ),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_broken_promise_is_seen(name: str) -> None:
    invariant, bad = BAD[name]
    assert invariant in broken(bad)
