"""Hand-made histories of records on their way to handlers: good ones, and for each promise some
that break it.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.checker import Case, Promise, Stored
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

OTHER: Partition = ("orders", 1)
ONE = Promise(concurrency=1, ordering="unordered")
ONE_OF_EACH = Promise(concurrency=9, per_partition=1, ordering="unordered")
TWO_BY_KEY = Promise(ordering="key", window=1, reads_ahead=True)
WINDOW = Promise(window=2)
TWO_A_SECOND = Promise(rate=2.0, ordering="unordered")
ONE_HELD = Promise(rate=2.0, rate_held=1, ordering="unordered")
BATCH = [begin(number, call=5) for number in range(3)]
BOTH = {TP: LOG[TP], OTHER: {number: Stored(f"o{number}", None) for number in range(3)}}


def on(partition: Partition, *events: Event) -> list[Event]:
    return [event._replace(tp=partition) for event in events]


def at(time: float, *events: Event) -> list[Event]:
    return [event._replace(at=time) for event in events]


def of_client(number: int, *events: Event) -> list[Event]:
    return [event._replace(client=number) for event in events]


def fetched(first: int, until: int, client: int = 0) -> Event:
    return Event(0.0, "fetched", "A1", TP, first, client=client, until=until, count=until - first)


def aside(*offsets: int) -> list[Event]:
    return [Event(0.0, "aside", "A1", TP, offset) for offset in offsets]


def filtered(offset: int) -> Event:
    return Event(0.0, "skipped", "A1", TP, offset, "filter")


def later(offset: int, scope: str, delay_s: float = 10.0, call: int | None = None) -> Event:
    asked = end(offset, "later")
    return asked._replace(text=f"{scope} {delay_s}", call=asked.call if call is None else call)


def paused(tp: Partition = ("", -1), note: str = "lunch") -> Event:
    return Event(0.0, "paused", "A1", tp, note=note)


def resumed(tp: Partition = ("", -1), note: str = "lunch") -> Event:
    return Event(0.0, "resumed", "A1", tp, note=note)


def run(call: int, offset: int = 0) -> Event:
    return Event(0.0, "run", "A1", TP, offset, f"id{offset}", call, until=offset + 1)


def two(*events: Event | list[Event], **more: Any) -> Case:
    """Of two partitions."""
    named = {"log": BOTH, "log_end": {TP: 3, OTHER: 3}, "committed": {TP: 3, OTHER: 3}}
    return case(assigned(), on(OTHER, assigned()), *events, **{**named, **more})


OF_OTHER = on(
    OTHER,
    *[
        event
        for number in range(3)
        for event in (begin(number, f"o{number}", call=20 + number), end(number, call=20 + number))
    ],
)
RETRIED = on(OTHER, begin(0, "o0", call=20), end(0, "raised", call=20))
AGAIN = on(OTHER, begin(0, "o0", call=21, attempt=2), end(0, call=21))
CLAIMED = Event(0.0, "claim", "A2", TP, 0, token=2)
POISON = Event(0.0, "poison", "A1", TP, 0)
NEXT = assigned(generation=2)._replace(client=2)
OUT = Event(0.0, "revoked", "A1", TP)
ACROSS = [begin(0, call=5), *on(OTHER, begin(0, "o0", call=5))]
PUT_OFF = [later(0, "record", call=5), *on(OTHER, later(0, "record", call=5))]
REBALANCED = Event(0.0, "rebalanced", "A1", offset=2)

GOOD: dict[str, Case] = {
    "one handler after the other": case(assigned(), handled(0, 1, 2), commit(3), promise=ONE),
    "as many as a second's start at once, the others as fast as the rate": case(
        assigned(),
        *at(10.0, *handled(0, 1)),
        *at(10.5, *handled(2)),
        commit(3),
        promise=TWO_A_SECOND,
    ),
    "a batch is larger than a second's worth": case(
        assigned(),
        *at(10.0, *BATCH),
        *[end(number, call=5) for number in range(3)],
        commit(3),
        promise=TWO_A_SECOND,
    ),
    "one more than a second's worth was held until now": case(
        assigned(), *at(10.0, *handled(0, 1, 2)), commit(3), promise=ONE_HELD
    ),
    "another attempt is no start": case(
        assigned(),
        *at(
            10.0,
            begin(0),
            end(0, "raised"),
            begin(0, call=9, attempt=2),
            end(0, call=9),
            *handled(1),
        ),
        *at(10.5, *handled(2)),
        commit(3),
        promise=TWO_A_SECOND,
    ),
    "a transaction whose outcome nobody knows is repeated": case(
        assigned(),
        *at(10.0, begin(0), end(0, "cancelled"), begin(0, call=9), end(0, call=9), *handled(1)),
        *at(10.5, *handled(2)),
        commit(3),
        promise=TWO_A_SECOND,
    ),
    "what the store has refused runs no longer": case(
        assigned(),
        begin(0),
        Event(0.0, "refused", "A1", TP, 1, token=1),
        *handled(0, 1, 2, call=20),
        commit(3),
        promise=ONE,
    ),
    "who reads in a row that it is another's runs no handler of it any more": two(
        Event(0.0, "claim", "A2", TP, 0, token=2),
        begin(0),
        Event(0.0, "answer", "A1", note="unknown"),
        OF_OTHER,
        handled(0, 1, 2, call=20),
        commit(3),
        promise=ONE,
    ),
    "who does not know what became of its write reads the rows before its next one": two(
        Event(0.0, "claim", "A2", TP, 0, token=2),
        Event(0.0, "answer", "A1", note="unknown"),
        begin(0),
        Event(0.0, "send", "A1", OTHER, 0),
        OF_OTHER,
        handled(0, 1, 2, call=20),
        commit(3),
        promise=ONE,
    ),
    "a call of a client that has left runs no longer": two(
        of_client(2, begin(0), Event(0.0, "left", "A1")),
        OF_OTHER,
        handled(0, 1, 2, call=20),
        commit(3),
        promise=ONE,
    ),
    "one handler of each partition": two(
        begin(0), OF_OTHER, end(0), handled(1, 2), commit(3), promise=ONE_OF_EACH
    ),
    "a batch is one handler": case(
        assigned(),
        begin(0, call=5),
        begin(1, call=5),
        end(0, call=5),
        end(1, call=5),
        handled(2),
        commit(3),
        promise=ONE,
    ),
    "a broadcast record has two handlers": case(
        assigned(),
        handled(0),
        aside(0),
        handled(1),
        aside(1),
        commit(2),
        aside(2),
        handled(2),
        commit(3),
        promise=Promise(broadcast=True),
    ),
    "what is filtered has an end": case(
        assigned(),
        fetched(0, 1),
        handled(0),
        fetched(1, 2),
        filtered(1),
        fetched(2, 3),
        commit(2),
        handled(2),
        commit(3),
        promise=Promise(window=1),
    ),
    "what waits for its next attempt is no handler": case(
        assigned(),
        begin(0),
        end(0, "raised"),
        handled(1),
        begin(0, call=9, attempt=2),
        end(0, call=9),
        handled(2),
        commit(3),
        promise=ONE,
    ),
    "a handler whose partition has gone counts no longer": two(
        begin(0),
        assigned("A2", 2),
        OF_OTHER,
        handled(0, 1, 2, who="A2", call=30),
        commit(3, who="A2"),
        promise=ONE,
    ),
    "a handler that was cancelled for poison counts no longer": two(
        begin(0),
        POISON,
        OF_OTHER,
        Event(0.0, "letter", "", TP, 0),
        end(0, "cancelled"),
        handled(1, 2),
        commit(3),
        promise=Promise(concurrency=1, ordering="unordered", poison_cancels=True),
    ),
    "a client that has not heard that it is out goes on beside the one that follows it": two(
        NEXT,
        begin(0),
        begin(0, call=30),
        end(0),
        end(0, call=30),
        OUT,
        handled(1, 2),
        OF_OTHER,
        commit(3),
        promise=ONE_OF_EACH,
    ),
    "one job after the other": case(
        assigned(),
        run(1),
        Event(0.0, "over", "A1", note="ok", call=1),
        run(2, 1),
        handled(0, 1, 2),
        commit(3),
        promise=Promise(jobs=1),
    ),
    "a full window": case(
        assigned(),
        fetched(0, 2),
        handled(0),
        fetched(2, 3),
        handled(1, 2),
        commit(3),
        promise=WINDOW,
    ),
    "a window that is read again": case(
        assigned(),
        fetched(0, 2),
        Event(0.0, "reset", "A1", TP, 0, "seek"),
        fetched(0, 2),
        handled(0, 1),
        fetched(2, 3),
        handled(2),
        commit(3),
        promise=WINDOW,
    ),
    "a client that was told in a call that another one has claimed the row has let go": two(
        CLAIMED,
        fetched(0, 2),
        begin(0),
        end(0, "cancelled"),
        *on(OTHER, fetched(0, 2)),
        OF_OTHER,
        fetched(0, 2),
        handled(0, 1, 2, call=30),
        commit(3),
        promise=WINDOW,
    ),
    "more than the window in search of other keys": case(
        assigned(),
        fetched(0, 1),
        fetched(1, 3),
        handled(0, 1, 2),
        commit(3),
        promise=TWO_BY_KEY,
    ),
    "a record of each partition is more than the window": two(
        fetched(0, 1),
        *on(OTHER, fetched(0, 1)),
        handled(0, 1, 2),
        OF_OTHER,
        commit(3),
        promise=Promise(window=1),
    ),
    "a part for a partition that came when the window was full": two(
        Event(0.0, "fetched", "A1", TP, 0, until=2, count=2),
        on(OTHER, assigned(generation=2)),
        assigned(generation=2, note="back"),
        on(OTHER, fetched(0, 1)),
        handled(0, 1, 2),
        OF_OTHER,
        commit(3),
        promise=WINDOW,
    ),
    "a record of which the call gets its own task was taken right before a pause": case(
        assigned(),
        at(5.0, paused(), begin(0)),
        at(6.0, end(0), resumed(), *handled(1, 2), *commit(3)),
        promise=Promise(in_tasks=True),
    ),
    "a call in its own task begins right after its partition is read from elsewhere": two(
        fetched(0, 1),
        at(5.0, Event(0.0, "reset", "A1", TP, 1, "seek"), begin(0)),
        at(6.0, *OF_OTHER, end(0), *handled(1, 2), *commit(3)),
        promise=Promise(concurrency=1, in_tasks=True),
    ),
    "a call in its own task begins right after its record is read again": two(
        fetched(0, 1),
        at(5.0, Event(0.0, "reset", "A1", TP, 0, "seek"), fetched(0, 1), begin(0)),
        at(6.0, *OF_OTHER, end(0), *handled(1, 2), *commit(3)),
        promise=Promise(concurrency=1, in_tasks=True),
    ),
    "a batch in its own task begins right after one of its partitions is read from elsewhere": two(
        fetched(0, 1),
        at(5.0, Event(0.0, "reset", "A1", TP, 1, "seek"), begin(0, call=5)),
        at(5.0, on(OTHER, begin(0, "o0", call=5))[0], begin(1)),
        at(6.0, end(0, call=5), on(OTHER, end(0, call=5))[0], end(1), *handled(2), *commit(3)),
        at(7.0, *on(OTHER, begin(1, "o1"), end(1), begin(2, "o2"), end(2))),
        promise=Promise(concurrency=1, in_tasks=True, ordering="unordered"),
    ),
    "a handler that ran goes on in a pause": case(
        assigned(),
        begin(0),
        paused(),
        end(0, "raised"),
        resumed(),
        begin(0, call=9, attempt=2),
        end(0, call=9),
        handled(1, 2),
        commit(3),
    ),
    "a record that was put off begins when it asked, and others meanwhile": two(
        begin(0),
        later(0, "partition"),
        OF_OTHER,
        *at(20.0, begin(0, call=9), end(0, call=9), *handled(1, 2)),
        commit(3),
    ),
    "an attempt is on its way to the handler as another one asks for a delay": two(
        RETRIED,
        begin(0),
        *at(5.0, later(0, "channel"), *AGAIN),
        *at(20.0, *OF_OTHER[2:], begin(0, call=9), end(0, call=9), *handled(1, 2)),
        commit(3),
    ),
    "a record that was put off begins at once when its partition comes back": case(
        assigned(),
        begin(0),
        later(0, "channel"),
        assigned(generation=2),
        begin(0, call=9),
        end(0, call=9),
        handled(1, 2),
        commit(3),
    ),
    "a call that began before its partition was assigned again asks for nothing": case(
        assigned(),
        begin(0),
        assigned(generation=2),
        later(0, "partition"),
        *at(5.0, begin(0, call=9), end(0, call=9), *handled(1, 2)),
        commit(3),
    ),
    "another partition goes on when the one that was put off is to go": two(
        begin(0),
        later(0, "channel"),
        Event(0.0, "revoking", "A1", TP),
        OF_OTHER,
        OUT,
        assigned(generation=2),
        handled(0, 1, 2, call=20),
        commit(3),
    ),
    "a batch that was put off begins at once when one of its partitions is to go": two(
        begin(0, call=5),
        on(OTHER, begin(0, "o0", call=5)),
        later(0, "channel", call=5),
        on(OTHER, later(0, "channel", call=5)),
        on(OTHER, Event(0.0, "revoking", "A1"), Event(0.0, "revoked", "A1")),
        handled(0, 1, 2, call=20),
        commit(3),
        on(OTHER, assigned(generation=2)),
        OF_OTHER,
    ),
    "a batch asks for nothing while a rebalance takes one of its partitions": two(
        ACROSS,
        on(OTHER, Event(0.0, "revoking", "A1")),
        PUT_OFF,
        begin(0, call=6),
        end(0, call=6),
        on(OTHER, Event(0.0, "revoked", "A1")),
        REBALANCED,
        handled(1, 2),
        commit(3),
        on(OTHER, assigned(generation=2)),
        OF_OTHER,
    ),
    "nor when it was let go, and the next assignment has not come": two(
        ACROSS,
        on(OTHER, Event(0.0, "revoking", "A1"), Event(0.0, "revoked", "A1")),
        PUT_OFF,
        begin(0, call=6),
        end(0, call=6),
        REBALANCED,
        handled(1, 2),
        commit(3),
        on(OTHER, assigned(generation=2)),
        OF_OTHER,
    ),
    "nor if another client of the application has that partition": two(
        of_client(1, begin(0, call=5)),
        on(OTHER, *of_client(2, begin(0, "o0", call=5), Event(0.0, "revoking", "A1"))),
        of_client(1, REBALANCED, later(0, "channel", call=5)),
        on(OTHER, *of_client(2, later(0, "channel", call=5))),
        of_client(1, begin(0, call=6), end(0, call=6)),
        of_client(2, *on(OTHER, Event(0.0, "revoked", "A1")), REBALANCED),
        handled(1, 2),
        commit(3),
        on(OTHER, assigned(generation=2)),
        OF_OTHER,
    ),
    "the second handler of a broadcast gets what the first one had before a delay": case(
        assigned(),
        *at(5.0, begin(0), later(0, "channel")),
        *at(5.01, *handled(1)),
        *at(20.0, begin(0, call=9), end(0, call=9), *handled(2), *aside(0, 1, 2)),
        *at(21.0, *commit(3)),
        promise=Promise(ordering="unordered", broadcast=True),
    ),
    "the second handler of a broadcast gets it at a time that no sum of seconds is": case(
        assigned(),
        *at(5.004, begin(0), later(0, "channel")),
        *at(5.014, *handled(1)),
        *at(20.0, begin(0, call=9), end(0, call=9), *handled(2), *aside(0, 1, 2)),
        *at(21.0, *commit(3)),
        promise=Promise(ordering="unordered", broadcast=True),
    ),
    "a client that has not heard that it is out calls again when its own delay is over": case(
        *of_client(1, assigned()),
        *of_client(1, begin(0), later(0, "record")),
        *at(5.0, NEXT, *of_client(2, begin(0, call=9), later(0, "record", call=9))),
        *at(10.0, *of_client(1, begin(0, call=10), end(0, call=10))),
        *at(10.0, *of_client(1, OUT)),
        *at(15.0, *of_client(2, begin(0, call=11), end(0, call=11), *handled(1, 2))),
        *at(16.0, *commit(3)),
    ),
    "a call in a task of its own is on its way as another one asks for a delay": case(
        assigned(),
        *at(5.0, begin(0), later(0, "partition"), *handled(1)),
        *at(20.0, begin(0, call=9), end(0, call=9), *handled(2)),
        commit(3),
        promise=Promise(ordering="unordered", in_tasks=True),
    ),
    "a call that was asked for is no start": case(
        assigned(),
        *at(10.0, begin(0), later(0, "record", 0.0), begin(0, call=9), end(0, call=9)),
        *at(10.0, *handled(1)),
        *at(10.5, *handled(2)),
        commit(3),
        promise=TWO_A_SECOND,
    ),
    "another partition goes on in a pause": two(
        paused(TP),
        OF_OTHER,
        resumed(TP),
        handled(0, 1, 2),
        commit(3),
    ),
}


def test_a_broadcast_record_that_is_read_again_has_two_handlers_again() -> None:
    """Its position is before it until the second handler is through again, too."""
    sought = Event(0.0, "reset", "A1", TP, 2, "seek")
    once = [assigned(), *handled(0), *aside(0), *handled(1), *aside(1), *handled(2), *aside(2)]
    moved = [assigned("A2", 2), *handled(2, who="A2", call=20), *aside(2), *commit(3, who="A2")]
    again = [*commit(3), sought, *commit(2, call=2), *handled(2, call=10)]
    broadcast = Promise(broadcast=True)
    assert "I7" not in broken(case(once, again, moved, promise=broadcast))
    assert "I7" in broken(case(once, again, aside(2), moved, promise=broadcast))


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_breaks_nothing(name: str) -> None:
    assert not {"I1", "I2", "I15", "I16", "I18", "I23", "I25", "I26", "I27", "S8"} & broken(
        GOOD[name]
    )


BAD: dict[str, tuple[str, Case]] = {
    "what stays in an incremental rebalance counts on": (
        "I16",
        two(
            fetched(0, 2),
            on(OTHER, assigned(generation=2)),
            fetched(2, 3),
            handled(0, 1, 2),
            OF_OTHER,
            commit(3),
            promise=Promise(window=2, incremental=True),
        ),
    ),
    "two handlers run where one may, and another client has left": (
        "I15",
        two(
            of_client(2, begin(0)),
            of_client(3, Event(0.0, "left", "A1")),
            OF_OTHER,
            handled(0, 1, 2, call=20),
            commit(3),
            promise=ONE,
        ),
    ),
    "two handlers run where one may": (
        "I15",
        case(assigned(), begin(0), begin(1), end(0), end(1), handled(2), commit(3), promise=ONE),
    ),
    "a call in its own task begins long after its partition is read from elsewhere": (
        "I15",
        two(
            fetched(0, 1),
            at(5.0, Event(0.0, "reset", "A1", TP, 1, "seek")),
            at(6.0, begin(0), *OF_OTHER, end(0), *handled(1, 2), *commit(3)),
            promise=Promise(concurrency=1, in_tasks=True),
        ),
    ),
    "a record of after a seek begins next to another handler": (
        "I15",
        two(
            at(5.0, Event(0.0, "reset", "A1", TP, 1, "seek"), fetched(1, 2), begin(1)),
            at(6.0, *OF_OTHER, end(1), *handled(2), *commit(3)),
            promise=Promise(concurrency=1, in_tasks=True),
        ),
    ),
    "two handlers of one partition run where one may": (
        "I15",
        two(
            begin(0), begin(1), OF_OTHER, end(0), end(1), handled(2), commit(3), promise=ONE_OF_EACH
        ),
    ),
    "two handlers of one partition run where the other client has heard that it is out": (
        "I15",
        two(
            NEXT,
            OUT,
            begin(0),
            begin(1),
            OF_OTHER,
            end(0),
            end(1),
            handled(2),
            commit(3),
            promise=ONE_OF_EACH,
        ),
    ),
    "a handler of another partition, too, where one may": (
        "I15",
        two(begin(0), OF_OTHER, end(0), handled(1, 2), commit(3), promise=ONE),
    ),
    "a poison record's handler that nobody cancels counts on": (
        "I15",
        two(begin(0), POISON, OF_OTHER, end(0), handled(1, 2), commit(3), promise=ONE),
    ),
    "an unknown answer about a row that is its own leaves the handler running": (
        "I15",
        two(
            Event(0.0, "claim", "A1", TP, 0, token=2),
            begin(0),
            Event(0.0, "answer", "A1", note="unknown"),
            OF_OTHER,
            end(0),
            handled(1, 2),
            commit(3),
            promise=ONE,
        ),
    ),
    "a handler of a row that is another's runs until its application has read that": (
        "I15",
        two(
            Event(0.0, "claim", "A2", TP, 0, token=2),
            begin(0),
            Event(0.0, "answer", "A1", note="ok"),
            OF_OTHER,
            end(0),
            handled(1, 2),
            commit(3),
            promise=ONE,
        ),
    ),
    "who knows what became of its write reads no row before its next one": (
        "I15",
        two(
            Event(0.0, "claim", "A2", TP, 0, token=2),
            Event(0.0, "answer", "A1", note="unknown"),
            Event(0.0, "answer", "A1", note="ok"),
            begin(0),
            Event(0.0, "send", "A1", OTHER, 0),
            OF_OTHER,
            end(0),
            handled(1, 2),
            commit(3),
            promise=ONE,
        ),
    ),
    "one record more than a second's worth": (
        "I25",
        case(assigned(), *at(10.0, *handled(0, 1, 2)), commit(3), promise=TWO_A_SECOND),
    ),
    "one record more than a second's worth and one that was held": (
        "I25",
        case(
            assigned(),
            *at(10.0, *handled(0, 1, 2), begin(0, call=9), end(0, call=9)),
            commit(3),
            promise=ONE_HELD,
        ),
    ),
    "one that comes before its time": (
        "I25",
        case(
            assigned(),
            *at(10.0, *handled(0, 1)),
            *at(10.4, *handled(2)),
            commit(3),
            promise=TWO_A_SECOND,
        ),
    ),
    "one that comes too soon behind a large batch": (
        "I25",
        case(
            assigned(),
            *at(10.0, *BATCH),
            *at(10.4, begin(0, call=9)),
            commit(3),
            promise=TWO_A_SECOND,
        ),
    ),
    "a handler gets what is filtered": (
        "I26",
        case(
            assigned(),
            begin(0, "r2"),
            end(0),
            commit(1),
            promise=Promise(filters=True),
            log={TP: {0: Stored("r2", None)}},
            log_end={TP: 1},
            committed={TP: 1},
        ),
    ),
    "a broadcast record is committed without its other handler": (
        "I1",
        case(
            assigned(),
            handled(0, 1, 2),
            aside(0, 1),
            commit(3),
            aside(2),
            promise=Promise(broadcast=True),
        ),
    ),
    "two jobs run where one may": (
        "S8",
        case(assigned(), run(1), run(2, 1), handled(0, 1, 2), commit(3), promise=Promise(jobs=1)),
    ),
    "one record more than the window": (
        "I16",
        case(assigned(), fetched(0, 2), fetched(2, 3), handled(0, 1, 2), commit(3), promise=WINDOW),
    ),
    "one record more than the window of two partitions": (
        "I16",
        two(
            fetched(0, 1),
            on(OTHER, fetched(0, 1)),
            fetched(1, 2),
            handled(0, 1, 2),
            OF_OTHER,
            commit(3),
            promise=WINDOW,
        ),
    ),
    "ten windows by key, and one more": (
        "I16",
        case(
            assigned(),
            fetched(0, 11),
            log={TP: {number: Stored(f"r{number}", None) for number in range(11)}},
            log_end={TP: 11},
            promise=TWO_BY_KEY,
        ),
    ),
    "half of a window more than a new partition's part": (
        "I16",
        two(
            Event(0.0, "fetched", "A1", TP, 0, until=2, count=2),
            on(OTHER, assigned(generation=2)),
            assigned(generation=2, note="back"),
            on(OTHER, fetched(0, 2)),
            handled(0, 1, 2),
            OF_OTHER,
            commit(3),
            promise=WINDOW,
        ),
    ),
    "a record begins while all is paused": (
        "I18",
        case(assigned(), paused(), handled(0, 1, 2), resumed(), commit(3)),
    ),
    "a call in its own task begins long after a pause": (
        "I18",
        case(
            assigned(),
            at(5.0, paused()),
            at(5.1, *handled(0, 1, 2), *commit(3)),
            promise=Promise(in_tasks=True),
        ),
    ),
    "a record begins while its partition is paused": (
        "I18",
        case(assigned(), paused(TP), handled(0, 1, 2), commit(3)),
    ),
    "one of two reasons is enough": (
        "I18",
        case(assigned(), paused(), paused(note="night"), resumed(), handled(0, 1, 2), commit(3)),
    ),
    "a retried record begins anew while it is paused": (
        "I18",
        case(
            assigned(),
            begin(0),
            end(0, "raised"),
            paused(),
            begin(0, call=9),
            end(0, call=9),
            resumed(),
            handled(1, 2),
            commit(3),
        ),
    ),
    "another attempt begins while it is paused": (
        "I18",
        case(
            assigned(),
            begin(0),
            paused(),
            end(0, "raised"),
            begin(0, call=9, attempt=2),
            end(0, call=9),
            resumed(),
            handled(1, 2),
            commit(3),
        ),
    ),
    "a record that was put off begins too soon": (
        "I27",
        case(
            assigned(),
            begin(0),
            later(0, "record"),
            *at(9.0, begin(0, call=9), end(0, call=9)),
            handled(1, 2),
            commit(3),
        ),
    ),
    "one of a partition that was put off begins too soon": (
        "I27",
        case(assigned(), begin(0), later(0, "partition"), *at(9.0, *handled(1, 2)), commit(0)),
    ),
    "one of a partition that was put off after it was assigned again begins too soon": (
        "I27",
        case(
            assigned(),
            assigned(generation=2),
            begin(0),
            later(0, "partition"),
            *at(9.0, *handled(1, 2)),
            commit(0),
        ),
    ),
    "one of a partition that was put off begins in the same moment": (
        "I27",
        case(assigned(), *at(9.0, begin(0), later(0, "partition"), *handled(1, 2)), commit(0)),
    ),
    "one of a partition that was put off begins later in a task of its own": (
        "I27",
        case(
            assigned(),
            begin(0),
            later(0, "partition"),
            *at(9.0, *handled(1, 2)),
            commit(0),
            promise=Promise(ordering="unordered", in_tasks=True),
        ),
    ),
    "a client calls again too soon while another one has not heard that it is out": (
        "I27",
        case(
            *of_client(1, assigned()),
            *of_client(1, begin(0), later(0, "record")),
            *at(5.0, NEXT, *of_client(2, begin(0, call=9), later(0, "record", call=9))),
            *at(10.0, *of_client(2, begin(0, call=10), end(0, call=10))),
            commit(0),
        ),
    ),
    "a client that has not heard that it is out begins in a partition that another one holds": (
        "I27",
        case(
            *of_client(1, assigned()),
            *of_client(1, begin(0), later(0, "record")),
            *at(5.0, NEXT, *of_client(2, begin(0, call=9), later(0, "partition", call=9))),
            *at(10.0, *of_client(1, begin(0, call=10), end(0, call=10))),
            commit(0),
        ),
    ),
    "another client calls again too soon after the first one has let go": (
        "I27",
        case(
            *of_client(1, assigned()),
            *of_client(1, OUT),
            NEXT,
            *at(5.0, *of_client(2, begin(0), later(0, "record"))),
            *at(10.0, *of_client(1, begin(0, call=10), end(0, call=10))),
            commit(0),
        ),
    ),
    "one of a channel that was put off begins too soon": (
        "I27",
        two(begin(0), later(0, "channel"), OF_OTHER, commit(0)),
    ),
    "a batch that was put off begins too soon when a partition that it has nothing of goes": (
        "I27",
        two(
            begin(0),
            later(0, "channel"),
            on(OTHER, Event(0.0, "revoking", "A1"), Event(0.0, "revoked", "A1")),
            begin(0, call=9),
            end(0, call=9),
            handled(1, 2),
            commit(3),
        ),
    ),
    "a batch that was put off when a rebalance was over begins too soon": (
        "I27",
        two(
            ACROSS,
            on(OTHER, Event(0.0, "revoking", "A1"), Event(0.0, "revoked", "A1")),
            REBALANCED,
            PUT_OFF,
            begin(0, call=6),
            end(0, call=6),
            handled(1, 2),
            commit(3),
        ),
    ),
    "a batch that was put off begins too soon in a rebalance that takes nothing of it": (
        "I27",
        two(
            begin(0, call=5),
            on(OTHER, Event(0.0, "revoking", "A1")),
            later(0, "record", call=5),
            begin(0, call=6),
            end(0, call=6),
            on(OTHER, Event(0.0, "revoked", "A1")),
            REBALANCED,
            handled(1, 2),
            commit(3),
        ),
    ),
    "a batch that was put off begins too soon in another client's rebalance": (
        "I27",
        two(
            of_client(1, begin(0, call=5), *on(OTHER, begin(0, "o0", call=5))),
            of_client(2, *on(OTHER, Event(0.0, "revoking", "A1"))),
            of_client(1, later(0, "record", call=5)),
            on(OTHER, *of_client(1, later(0, "record", call=5))),
            of_client(1, begin(0, call=6), end(0, call=6)),
            handled(1, 2),
            commit(3),
        ),
    ),
    "a record of a broadcast begins too soon": (
        "I27",
        case(
            assigned(),
            *at(5.0, begin(0), later(0, "channel")),
            *at(6.0, *handled(1)),
            commit(0),
            promise=Promise(ordering="unordered", broadcast=True),
        ),
    ),
    "an attempt begins when a delay has begun": (
        "I27",
        two(RETRIED, begin(0), at(5.0, later(0, "channel")), at(5.1, *AGAIN), commit(0)),
    ),
    "a handler finds what another one has set": (
        "I23",
        case(assigned(), begin(0)._replace(text="b"), end(0), handled(1, 2), commit(3)),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_broken_promise_is_seen(name: str) -> None:
    invariant, bad = BAD[name]
    assert invariant in broken(bad)
