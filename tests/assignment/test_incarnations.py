"""Which incarnation of its topic a position belongs to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import TopicPartition
from reactive_kafka.assignment.incarnations import Incarnations
from reactive_kafka.records import TopicIds

ORDERS = TopicPartition("orders", 0)
THREE = frozenset({1, 2, 3})


def said(broker: int, id: str, alive: frozenset[int] = THREE) -> TopicIds:
    return TopicIds(broker, {"orders": id}, alive)


def tell(known: Incarnations, *answers: TopicIds, by_all: bool = False) -> None:
    """Play one question and its answers."""
    question = known.asks()
    if by_all:
        known.all_answered(question, answers)
    else:
        known.some_answered(question, answers)


def believing(id: str, *silent: int) -> Incarnations:
    """What is known once all brokers but the silent ones have given this id."""
    known = Incarnations()
    tell(known, *(said(broker, id) for broker in sorted(THREE.difference(silent))), by_all=True)
    return known


def test_a_position_is_void_once_a_broker_has_another_id() -> None:
    known = believing("a")
    assert known.reads(ORDERS) == "a"
    assert known.why_void("orders", "a") is None
    tell(known, said(2, "b"))
    why = known.why_void("orders", "a")
    assert why == "topic 'orders' was deleted and recreated: its id was a, and is b"
    assert known.last_read(ORDERS) == "a"
    assert known.reads(ORDERS) == known.last_read(ORDERS) == "b"


def test_where_no_id_is_told_nothing_is_void() -> None:
    known = Incarnations()
    assert known.reads(ORDERS) is None
    tell(known, by_all=True)
    assert known.why_void("orders", "a") is None
    tell(known, said(1, "a"), by_all=True)
    assert known.why_void("orders", None) is None


def test_one_broker_alone_begins_no_belief() -> None:
    known = Incarnations()
    tell(known, said(1, "a"))
    assert known.id_of("orders") is None
    assert known.are_in_doubt(["orders"])
    assert known.why_undecided(["orders"]) == (
        "the id of topic 'orders' is not known yet: only some of the brokers have given it, as a"
    )


def test_brokers_that_disagree_at_first_are_not_believed_before_they_agree() -> None:
    known = Incarnations()
    tell(known, said(1, "b"), said(2, "a"), said(3, "b"), by_all=True)
    assert known.id_of("orders") is None
    why = known.why_undecided(["orders"])
    assert why == "topic 'orders' was just created again: the brokers give a and b as its id"
    tell(known, said(2, "b"))
    assert known.why_undecided(["orders"]) is not None
    tell(known, said(1, "b"), said(2, "b"), said(3, "b"), by_all=True)
    assert known.id_of("orders") == "b"
    assert known.why_undecided(["orders"]) is None


def test_an_old_id_of_a_broker_that_was_silent_changes_no_belief() -> None:
    """It was frozen when the topic was deleted and created, and the process started after that."""
    known = believing("b", 2)
    tell(known, said(2, "a"))
    assert known.id_of("orders") == "b"
    tell(known, said(1, "b"), said(2, "a"), said(3, "b"), by_all=True)
    assert known.id_of("orders") == "b"
    tell(known, said(2, "b"))
    tell(known, said(3, "b"))
    assert known.id_of("orders") == "b"
    assert not known.are_in_doubt(["orders"])


def test_an_id_that_was_believed_wrongly_makes_way_for_the_newer_one() -> None:
    known = believing("a", 1, 3)
    tell(known, said(1, "b"), said(2, "a"), said(3, "b"), by_all=True)
    assert known.id_of("orders") == "a"
    tell(known, said(2, "b"))
    assert known.id_of("orders") == "b"
    assert known.why_void("orders", "a") is not None


def test_a_broker_that_is_gone_holds_up_no_belief() -> None:
    known = believing("a", 1, 3)
    left = frozenset({1, 3})
    tell(known, said(1, "b", left), said(3, "b", left), by_all=True)
    assert known.id_of("orders") == "b"


def test_an_id_that_comes_back_is_believed_again_if_no_broker_had_replaced_it() -> None:
    known = believing("b", 1, 3)
    left = frozenset({1, 3})
    tell(known, said(1, "a", left), said(3, "a", left), by_all=True)
    assert known.id_of("orders") == "a"
    tell(known, said(1, "b", left))
    assert known.id_of("orders") == "b"


@pytest.mark.parametrize("by_all", [False, True])
def test_an_id_that_a_broker_has_replaced_is_never_believed_again(by_all: bool) -> None:
    known = believing("a")
    tell(known, said(1, "b"))
    tell(known, said(3, "a"), by_all=by_all)
    assert known.id_of("orders") == "b"


def test_a_broker_that_is_cut_off_from_the_cluster_does_not_hold_up_the_start() -> None:
    """It answers, and still takes all for living; those that are in the cluster know that it is
    not.
    """
    known = Incarnations()
    left = frozenset({1, 3})
    tell(known, said(1, "b", left), said(2, "a"), said(3, "b", left), by_all=True)
    assert known.id_of("orders") == "b"


def test_answers_that_come_in_another_order_than_they_were_given_replace_nothing() -> None:
    known = believing("a")
    slow, quick = known.asks(), known.asks()
    known.some_answered(quick, [said(1, "b")])
    known.some_answered(slow, [said(1, "a")])
    assert known.id_of("orders") == "b"
    assert known.why_void("orders", "b") is None


def test_a_broker_that_was_asked_again_meanwhile_is_among_those_who_answered() -> None:
    known, alone = Incarnations(), frozenset({1})
    of_all, of_one = known.asks(), known.asks()
    known.some_answered(of_one, [said(1, "a", alone)])
    assert known.id_of("orders") is None
    known.all_answered(of_all, [said(1, "a", alone)])
    assert known.id_of("orders") == "a"


def test_of_a_broker_that_was_asked_again_meanwhile_the_newer_answer_counts() -> None:
    known = Incarnations()
    of_all, of_one = known.asks(), known.asks()
    known.some_answered(of_one, [said(2, "b")])
    known.all_answered(of_all, [said(broker, "a") for broker in (1, 2, 3)])
    assert known.id_of("orders") is None
    tell(known, *(said(broker, "b") for broker in (1, 2, 3)), by_all=True)
    assert known.id_of("orders") == "b"


def test_a_topic_that_the_newer_answer_does_not_have_is_not_known() -> None:
    known, alone = Incarnations(), frozenset({1})
    older, newer = known.asks(), known.asks()
    known.some_answered(newer, [TopicIds(1, {"letters": "x"}, alone)])
    known.all_answered(older, [said(1, "a", alone)])
    assert known.id_of("orders") is None
    assert known.why_undecided(["orders"]) is None


def test_a_topic_that_is_created_again_for_ever_takes_no_more_memory() -> None:
    known = believing("0")
    for number in range(1, 1000):
        for broker in THREE:
            tell(known, said(broker, str(number)))
    assert known.id_of("orders") == "999"
    assert len(known._topics["orders"]._replaced) < 20


class Brokers:
    """Brokers that learn of each incarnation at their own time, in order, and may miss one in
    between.
    """

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self.count = data.draw(st.sampled_from([3, 1, 2, 4]), label="brokers")
        self.newest = 0
        self._at = [0] * self.count
        self.silent = set[int]()

    def answer(self, broker: int) -> TopicIds:
        """What one of them says now."""
        return said(broker, f"id-{self._at[broker]:02}", frozenset(range(self.count)))

    def answers(self) -> list[TopicIds]:
        """What all say that are not silent."""
        return [self.answer(broker) for broker in range(self.count) if broker not in self.silent]

    def step(
        self, acts: Sequence[str] = ("recreate", "learn", "learn", "learn", "silence")
    ) -> None:
        """The topic is created again, or a broker learns of it, or falls silent or answers
        again.
        """
        act = self._data.draw(st.sampled_from(acts), label="act")
        broker = self._data.draw(st.integers(0, self.count - 1), label="broker")
        if act == "recreate":
            self.newest += 1
        elif act == "silence":
            self.silent ^= {broker}
        elif self._at[broker] < self.newest:
            self._at[broker] = self._data.draw(
                st.integers(self._at[broker] + 1, self.newest), label="learns of"
            )

    def learn(self, broker: int) -> None:
        """A broker knows the newest incarnation."""
        self._at[broker] = self.newest

    def learn_all(self) -> None:
        """Every broker answers, and knows the newest incarnation."""
        self._at = [self.newest] * self.count
        self.silent.clear()


class Reader:
    """A process that looks at the ids as a channel does, and reads one partition once it knows
    them.
    """

    def __init__(self, brokers: Brokers, data: st.DataObject) -> None:
        self.known = Incarnations()
        self._brokers = brokers
        self._data = data
        self._on_their_way: list[tuple[int, TopicIds]] = []
        self.read = list[str]()

    def look(self) -> None:
        """One look: a broker is asked, and all of them if that is in doubt. Answers may be
        overtaken.
        """
        known, brokers = self.known, self._brokers
        broker = self._data.draw(st.integers(0, brokers.count - 1), label="asked")
        if broker not in brokers.silent:
            self._on_their_way.append((known.asks(), brokers.answer(broker)))
        if self._data.draw(st.sampled_from(["now", "now", "later"]), label="comes") == "later":
            return
        for question, answer in self._data.draw(st.permutations(self._on_their_way), label="come"):
            known.some_answered(question, [answer])
        self._on_their_way.clear()
        if known.are_in_doubt(["orders"]) and (answers := brokers.answers()):
            known.all_answered(known.asks(), answers)
        self._go_on()

    def _go_on(self) -> None:
        if self.known.why_undecided(["orders"]) is not None and not self.read:
            return
        if not self.read or self.known.why_void("orders", self.read[-1]) is not None:
            now = self.known.reads(ORDERS)
            if now is not None:
                self.read.append(now)

    def look_at_each(self, brokers: Sequence[int]) -> None:
        """Each broker has been asked."""
        for broker in brokers:
            self.known.some_answered(self.known.asks(), [self._brokers.answer(broker)])
            if self.known.are_in_doubt(["orders"]):
                self.known.all_answered(self.known.asks(), self._brokers.answers())
            self._go_on()


@settings(max_examples=400)
@given(st.data())
def test_brokers_that_lag_behind_void_nothing(data: st.DataObject) -> None:
    """Each learns of each incarnation at its own time; the reader starts at any time, and hears any
    of them first.
    """
    brokers = Brokers(data)
    for _ in range(data.draw(st.integers(0, 8), label="before the start")):
        brokers.step()
    reader = Reader(brokers, data)
    for _ in range(data.draw(st.integers(0, 20), label="steps")):
        if data.draw(st.booleans(), label="look"):
            reader.look()
        else:
            brokers.step()
        numbers = [int(id.removeprefix("id-")) for id in reader.read]
        assert numbers == sorted(set(numbers)), "a partition was voided for an older incarnation"
    brokers.learn_all()
    reader.look_at_each(data.draw(st.permutations(range(brokers.count)), label="asked at the end"))
    assert reader.read[-1] == f"id-{brokers.newest:02}"
    assert reader.known.why_undecided(["orders"]) is None
    assert not reader.known.are_in_doubt(["orders"])


@settings(max_examples=400)
@given(st.data())
def test_a_process_that_starts_after_the_topic_was_created_again_voids_nothing(
    data: st.DataObject,
) -> None:
    """One broker at least knows the newest incarnation by then. The others lag behind, as far as
    they like.
    """
    brokers = Brokers(data)
    for _ in range(data.draw(st.integers(0, 12), label="before the start")):
        brokers.step(["recreate", "learn"])
    brokers.learn(0)
    reader = Reader(brokers, data)
    for _ in range(data.draw(st.integers(0, 20), label="steps")):
        if data.draw(st.booleans(), label="look"):
            reader.look()
        else:
            brokers.step(["learn"])
    brokers.learn_all()
    reader.look_at_each(range(brokers.count))
    assert reader.read == [f"id-{brokers.newest:02}"]
