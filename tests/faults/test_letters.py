"""Each rule about dead letters and delayed retries fails on a hand-made bad history, and all hold
on a good one.
"""

from __future__ import annotations

from math import inf

import pytest

from tests.faults.history import Event
from tests.faults.letters import Stored, early, unfaithful, written_on

SOURCE, RETRY, DEAD = ("orders", 0), ("orders_500", 0), ("dead", 2)
ORIGINAL = Stored(10.0, "a", b"key", b"\xff raw", (("id", b"a"), ("trace", b"1")))
ORIGIN = {SOURCE: {7: ORIGINAL}}
OURS = (
    ("dead-letter-reason", b"no"),
    ("dead-letter-exception-class-name", b"ValueError"),
    ("dead-letter-topic", b"orders"),
    ("dead-letter-partition", b"0"),
    ("dead-letter-offset", b"7"),
    ("dead-letter-timestamp", b"10000"),
)
LETTER = ORIGINAL._replace(t=99.0, headers=(*OURS, *ORIGINAL.headers))
HOPS = [("orders", "orders_500", 0.5)]


def problems(letter: Stored) -> list[str]:
    """What is wrong with it."""
    found = unfaithful(ORIGIN, {DEAD: {0: letter}}, on_the_way=[{RETRY: {3: ORIGINAL}}])
    return [violation.text.partition(": ")[2] for violation in found]


def header(name: str, value: bytes) -> Stored:
    """The good letter, with one header changed."""
    return LETTER._replace(headers=tuple({**dict(LETTER.headers), name: value}.items()))


def event(t: float, kind: str, topic: str, outcome: str = "") -> Event:
    return Event(t=t, process="p.1", kind=kind, tp=(topic, 0), offset=1, id="a", outcome=outcome)


def test_a_good_letter_has_nothing_wrong() -> None:
    assert problems(LETTER) == []


@pytest.mark.parametrize(
    ("letter", "problem"),
    [
        (LETTER._replace(value=b"? raw"), "the value was b'\\xff raw' and is b'? raw'"),
        (LETTER._replace(key=None), "the key was b'key' and is None"),
        (
            header("dead-letter-timestamp", b"99000"),
            "its timestamp was 10.0 and its header is b'99000'",
        ),
        (LETTER._replace(headers=(*OURS, ("id", b"a"))), "the headers [('trace', b'1')] are gone"),
        (LETTER._replace(id="b"), "nobody sent that"),
        (
            LETTER._replace(headers=ORIGINAL.headers),
            "no header tells ['reason', 'exception-class-name', 'topic',",
        ),
        (header("dead-letter-reason", b""), "no header tells ['reason']"),
        (header("dead-letter-offset", b"6"), "its headers point at another record"),
        (header("dead-letter-topic", b"invoices"), "its headers point at another record"),
    ],
)
def test_a_letter_that_is_not_faithful_is_found(letter: Stored, problem: str) -> None:
    (found,) = problems(letter)
    assert found.startswith(problem)


def test_a_letter_may_say_that_it_comes_from_a_retry_topic() -> None:
    moved = header("dead-letter-topic", b"orders_500")
    offset = tuple({**dict(moved.headers), "dead-letter-offset": b"3"}.items())
    assert problems(moved._replace(headers=offset)) == []


def test_a_record_has_left_its_topic_when_it_is_first_in_another_one() -> None:
    first, again = ORIGINAL._replace(t=11.0), ORIGINAL._replace(t=12.0)
    log = {**ORIGIN, ("orders", 1): {0: ORIGINAL._replace(id="b")}}
    assert written_on(log, [{RETRY: {0: again}}, {DEAD: {5: first}}], timed=True) == {
        (SOURCE, 7): 11.0
    }
    assert written_on(log, [{DEAD: {5: first}}], timed=False) == {(SOURCE, 7): -inf}


@pytest.mark.parametrize(("begun_at", "is_early"), [(1.49, True), (1.5, False), (4.0, False)])
def test_a_retry_that_begins_before_its_delay_is_early(begun_at: float, is_early: bool) -> None:
    events = [event(1.0, "end", "orders", "failed"), event(begun_at, "begin", "orders_500")]
    assert bool(list(early(events, HOPS))) is is_early


def test_a_retry_of_what_never_failed_is_early() -> None:
    events = [event(1.0, "end", "orders", "ok"), event(9.0, "begin", "orders_500")]
    assert [violation.invariant for violation in early(events, HOPS)] == ["DUE"]


def test_of_a_record_that_failed_twice_the_first_time_counts() -> None:
    events = [
        event(1.0, "end", "orders", "failed"),
        event(1.4, "end", "orders", "failed"),
        event(1.6, "begin", "orders_500"),
    ]
    assert list(early(events, HOPS)) == []
