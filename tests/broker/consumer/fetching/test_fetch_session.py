"""What each fetch of a connection names, against a model of what a broker remembers and answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka.broker.consumer.fetching.fetch_session import (
    FULL,
    LAST_EPOCH,
    FetchSession,
    PartitionFetch,
    SessionFetch,
)

NOT_FOUND, INVALID_EPOCH = 70, 71
Name = tuple[str, int]
NAMES: list[Name] = [("orders", 0), ("orders", 1), ("orders", 2), ("clicks", 0), ("clicks", 1)]


@dataclass
class Remembered:
    """A session in the broker's cache."""

    asked: dict[Name, tuple[int, int]]
    told: dict[Name, int]
    epoch: int = 1


@dataclass
class Answer:
    error: int = 0
    session_id: int = 0
    ends: dict[Name, int] = field(default_factory=dict)
    # What the broker takes to be wanted.
    looked_at: frozenset[PartitionFetch] = frozenset()


class Broker:
    """As ``FetchSession.scala`` has it: room for so many sessions, and an end of the log for each
    partition.
    """

    def __init__(self) -> None:
        self.sessions: dict[int, Remembered] = {}
        self.ends = dict.fromkeys(NAMES, 0)
        self.has_room = True
        self._ids = count(1)

    def answer(self, asked: SessionFetch, wanted: frozenset[PartitionFetch]) -> Answer:
        """*wanted* is what a full fetch has in it."""
        if asked.epoch <= FULL:
            assert asked.named is None and not asked.forgotten
            self.sessions.pop(asked.session_id, None)
            ends = {one[:2]: self.ends[one[:2]] for one in wanted}
            made = 0
            if self.has_room:
                made = next(self._ids)
                self.sessions[made] = Remembered({one[:2]: one[2:] for one in wanted}, dict(ends))
            return Answer(0, made, ends, wanted)
        if (session := self.sessions.get(asked.session_id)) is None:
            return Answer(NOT_FOUND)
        if session.epoch != asked.epoch:
            return Answer(INVALID_EPOCH)
        assert asked.named is not None
        assert not {one[:2] for one in asked.named}.intersection(asked.forgotten)
        session.asked |= {one[:2]: one[2:] for one in asked.named}
        for name in asked.forgotten:
            # A KeyError: it was not there.
            del session.asked[name]
            del session.told[name]
        session.epoch = 1 if session.epoch == LAST_EPOCH else session.epoch + 1
        ends = {
            name: self.ends[name]
            for name in session.asked
            if session.told.get(name) != self.ends[name]
        }
        session.told |= ends
        return Answer(
            0,
            asked.session_id,
            ends,
            frozenset((*name, *rest) for name, rest in session.asked.items()),
        )


def parts(positions: dict[Name, int]) -> frozenset[PartitionFetch]:
    return frozenset((*name, offset, 1 << 20) for name, offset in positions.items())


WANTED = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), min_size=1).map(parts)
FAULTS = st.sampled_from(
    ["", "", "", "", "lost", "evicted", "full", "roomy", "other epoch", "anew", "error"]
)


@settings(max_examples=300)
@given(st.data())
def test_the_broker_always_looks_for_what_is_wanted_and_the_client_knows_every_end(
    data: st.DataObject,
) -> None:
    broker, session, known, lost, failed = Broker(), FetchSession(), dict[Name, int](), 0, False
    for _ in range(data.draw(st.integers(1, 25))):
        fault, wanted = data.draw(FAULTS), data.draw(WANTED)
        for name in data.draw(st.lists(st.sampled_from(NAMES), max_size=2)):
            broker.ends[name] += 1
        is_hurt = fault in ("evicted", "other epoch") and bool(broker.sessions)
        if fault == "evicted":
            broker.sessions.clear()
        elif fault == "other epoch":
            for one in broker.sessions.values():
                one.epoch += 7
        broker.has_room = (broker.has_room or fault == "roomy") and fault != "full"
        if fault == "anew":
            # A seek: the client's states are new.
            known.clear()
        asked = session.ask(wanted, full=fault == "anew")
        answer = broker.answer(asked, wanted)
        assert not (answer.error and failed), "an error is followed by a full fetch, which has none"
        assert not answer.error or is_hurt or lost
        failed = bool(answer.error)
        if fault == "lost":
            lost += 1
            continue
        if fault == "error":
            broker.sessions.pop(answer.session_id, None)
            answer = Answer(INVALID_EPOCH)
        session.answered(asked, answer.error, answer.session_id)
        if not answer.error:
            assert answer.looked_at == wanted
            known |= answer.ends
            assert all(known[one[:2]] == broker.ends[one[:2]] for one in wanted)
            assert len(broker.sessions) <= 1 + lost, "an old session is closed"


def opened(wanted: frozenset[PartitionFetch]) -> tuple[FetchSession, Broker]:
    session, broker = FetchSession(), Broker()
    answer_of(session, broker, wanted)
    return session, broker


def answer_of(
    session: FetchSession, broker: Broker, wanted: frozenset[PartitionFetch]
) -> tuple[SessionFetch, Answer]:
    asked = session.ask(wanted)
    answer = broker.answer(asked, wanted)
    session.answered(asked, answer.error, answer.session_id)
    return asked, answer


def test_what_has_not_changed_is_not_named() -> None:
    first = parts({("orders", 0): 5, ("orders", 1): 5, ("clicks", 0): 5})
    session, broker = opened(first)
    then = parts({("orders", 0): 6, ("orders", 1): 5, ("clicks", 1): 0})
    asked, _ = answer_of(session, broker, then)
    assert asked == (1, 1, parts({("orders", 0): 6, ("clicks", 1): 0}), (("clicks", 0),))
    asked, answer = answer_of(session, broker, then)
    assert asked == (1, 2, frozenset(), ())
    assert answer.ends == {}


def test_a_fetch_beside_one_without_an_answer_is_full_and_a_late_answer_says_nothing() -> None:
    wanted = parts({("orders", 0): 5})
    session, broker = opened(wanted)
    lost = session.ask(wanted)
    late = broker.answer(lost, wanted)
    asked = session.ask(wanted)
    assert asked == (1, FULL, None, ())
    session.answered(lost, late.error, late.session_id)
    answer = broker.answer(asked, wanted)
    session.answered(asked, answer.error, answer.session_id)
    assert session.ask(wanted) == (2, 1, frozenset(), ())


def test_without_a_session_each_fetch_asks_for_one() -> None:
    broker, session, wanted = Broker(), FetchSession(), parts({("orders", 0): 5})
    broker.has_room = False
    assert [answer_of(session, broker, wanted)[0] for _ in range(2)] == [(0, FULL, None, ())] * 2
    broker.has_room = True
    assert [answer_of(session, broker, wanted)[0].epoch for _ in range(3)] == [FULL, 1, 2]


def test_epochs_begin_anew_behind_the_last_one() -> None:
    session, broker = opened(wanted := parts({("orders", 0): 5}))
    session._epoch = broker.sessions[1].epoch = LAST_EPOCH
    assert [answer_of(session, broker, wanted)[0].epoch for _ in range(2)] == [LAST_EPOCH, 1]


def test_only_a_fetch_that_named_nothing_stands_and_each_time_under_the_next_epoch() -> None:
    session, broker = FetchSession(), Broker()
    wanted = parts({("orders", 0): 5})
    asked = session.ask(wanted)
    # It was a full one.
    assert not session.would_repeat(asked, 1)
    session.answered(asked, 0, broker.answer(asked, wanted).session_id)
    asked = session.ask(wanted)
    assert not session.would_repeat(asked, 7)
    for epoch in (2, 3):
        assert broker.answer(asked._replace(epoch=epoch - 1), wanted).error == 0
        assert session.would_repeat(asked, 1)
        assert session.repeat(asked) == epoch
    session.answered(asked, broker.answer(asked._replace(epoch=3), wanted).error, 1)
    assert session.ask(wanted).epoch == 4


def test_a_full_fetch_stands_where_there_is_no_session() -> None:
    session, wanted = FetchSession(), parts({("orders", 0): 5})
    asked = session.ask(wanted)
    assert session.would_repeat(asked, 0)
    assert session.repeat(asked) == FULL
    assert session.ask(wanted) == (0, FULL, None, ())
