"""What readers see of a log with transactions, and which positions count: against models that count
it out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.broker.memory.memory_positions import StoredPositions
from reactive_kafka.broker.memory.partition_log import PartitionLog

IDS = st.sampled_from("xyz")
STEPS = st.one_of(
    st.tuples(st.just("append"), st.none() | IDS),
    # Twice as often.
    st.tuples(st.just("append"), st.none() | IDS),
    st.tuples(st.just("end"), IDS, st.booleans()),
    st.tuples(st.just("marker")),
    st.tuples(st.just("remove"), st.sets(st.integers(0, 25), max_size=5)),
    st.tuples(st.just("delete"), st.floats(0, 1)),
    st.tuples(st.just("truncate"), st.floats(0.5, 1)),
)


@dataclass
class Slot:
    """What one offset holds. ``of``: which transaction, counted; None: none. Its time is as old as
    the number says.
    """

    of: int | None
    time: int = 0
    is_record: bool = True


@dataclass
class NaiveLog:
    """The log, with each question answered by looking at every offset."""

    slots: list[Slot] = field(default_factory=list)
    start: int = 0
    # Transactional id -> its transaction.
    running: dict[str, int] = field(default_factory=dict)
    # Of each transaction; None: it is open.
    outcomes: list[bool | None] = field(default_factory=list)

    def apply(self, log: PartitionLog, step: tuple[Any, ...]) -> None:
        """Do one thing to this log and to the real one."""
        match step:
            case ("append", by):
                time = (len(self.slots) * 7) % 5
                log.append(time, None, b"", (), by)
                self.slots.append(Slot(self._transaction(by), time))
            case ("end", by, is_committed):
                log.end_transaction(by, is_committed)
                if by in self.running:
                    self.outcomes[self.running.pop(by)] = is_committed
                self.slots.append(Slot(None, is_record=False))
            case ("marker",):
                log.append_markers(1)
                self.slots.append(Slot(None, is_record=False))
            case ("remove", offsets):
                log.remove(offsets)
                for offset in offsets:
                    if offset < len(self.slots):
                        self.slots[offset].is_record = False
            case ("delete", share):
                before = int(share * len(self.slots))
                log.delete_before(before)
                self.start = max(self.start, before)
            case ("truncate", share):
                log.truncate(end := int(share * len(self.slots)))
                del self.slots[end:]
                self.start = min(self.start, end)

    def _transaction(self, by: str | None) -> int | None:
        if by is None:
            return None
        if by not in self.running:
            self.running[by] = len(self.outcomes)
            self.outcomes.append(None)
        return self.running[by]

    def stable_end(self) -> int:
        open_at = [
            at
            for at, one in enumerate(self.slots)
            if one.of is not None and self.outcomes[one.of] is None
        ]
        return max(self.start, min(open_at, default=len(self.slots)))

    def seen(self, is_committed: bool) -> list[int]:
        """The offsets of the records that a reader gets."""
        end = self.stable_end() if is_committed else len(self.slots)
        there = [at for at in range(self.start, end) if self.slots[at].is_record]
        if not is_committed:
            return there
        return [at for at in there if (of := self.slots[at].of) is None or self.outcomes[of]]


def played(steps: list[tuple[Any, ...]]) -> tuple[NaiveLog, PartitionLog]:
    naive, log = NaiveLog(), PartitionLog()
    for step in steps:
        naive.apply(log, step)
    return naive, log


@given(st.lists(STEPS, max_size=40), st.booleans(), st.integers(1, 6))
def test_a_reader_gets_what_it_may_see_and_is_told_where_to_go_on(
    steps: list[tuple[Any, ...]], is_committed: bool, most: int
) -> None:
    naive, log = played(steps)
    seen = naive.seen(is_committed)
    end = naive.stable_end() if is_committed else len(naive.slots)
    assert (log.start, log.stable_end, log.end) == (
        naive.start,
        naive.stable_end(),
        len(naive.slots),
    )
    assert log.end_for(is_committed) == end
    for position in range(log.start, log.end + 1):
        records, next_offset = log.read(position, most, is_committed)
        wanted = [offset for offset in seen if offset >= position]
        assert [record.offset for record in records] == wanted[:most]
        assert next_offset == (wanted[most] if len(wanted) > most else end)


@given(st.lists(STEPS, max_size=40), st.booleans())
def test_who_reads_on_and_on_gets_each_record_once_and_arrives_at_its_end(
    steps: list[tuple[Any, ...]], is_committed: bool
) -> None:
    naive, log = played(steps)
    position, offsets = log.start, list[int]()
    while position < log.end_for(is_committed):
        records, further = log.read(position, 3, is_committed)
        assert further > position
        position = further
        offsets += [record.offset for record in records]
    assert offsets == naive.seen(is_committed)


@given(st.lists(STEPS, max_size=40), st.booleans(), st.integers(0, 5))
def test_the_offset_at_a_time_is_none_that_a_reader_has_to_wait_for(
    steps: list[tuple[Any, ...]], is_committed: bool, time: int
) -> None:
    naive, log = played(steps)
    at_time = [offset for offset in naive.seen(False) if naive.slots[offset].time >= time]
    first = at_time[0] if at_time else None
    is_beyond = first is not None and is_committed and first >= naive.stable_end()
    assert log.offset_at(time, is_committed) == (None if is_beyond else first)


def test_an_offset_that_is_given_out_again_is_not_aborted_any_more() -> None:
    _, log = played([("append", "x"), ("end", "x", False), ("truncate", 0.0), ("append", None)])
    assert [record.offset for record in log.read(0, 9, True)[0]] == [0]


PARTITIONS = st.sampled_from(
    [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
)
REQUESTS = st.one_of(
    st.tuples(st.just("store"), st.none(), st.sets(PARTITIONS)),
    st.tuples(st.just("hold"), IDS, st.sets(PARTITIONS)),
    st.tuples(st.just("end"), IDS, st.booleans()),
)


@given(st.lists(REQUESTS, max_size=30))
def test_of_all_positions_that_count_the_one_that_was_sent_last_is_stored(
    steps: list[tuple[str, Any, Any]],
) -> None:
    positions, counts, waiting = (
        StoredPositions(),
        list[tuple[int, TopicPartition]](),
        list[tuple[str, int, TopicPartition]](),
    )
    told = dict[TopicPartition, Committed]()
    for number, (kind, by, what) in enumerate(steps):
        if kind == "end":
            for entry in positions.end(by, what, 0.0):
                assert entry.member == f"member-{entry.generation}"
                assert {kept.offset for kept in entry.offsets.values()} == {entry.generation}
                told.update(entry.offsets)
            counts += [(sent, at) for its, sent, at in waiting if its == by and what]
            waiting = [one for one in waiting if one[0] != by]
        else:
            offsets = dict.fromkeys(what, Committed(number))
            if kind == "store":
                told.update(positions.store(0.0, f"member-{number}", number, offsets).offsets)
                counts += [(number, at) for at in what]
            else:
                positions.hold(by, f"member-{number}", number, offsets)
                waiting += [(by, number, at) for at in what]
        assert positions.stored == {at: Committed(sent) for sent, at in sorted(counts)} == told
        at_work = {at for _, _, at in waiting}
        assert set(positions.unstable([TopicPartition("t", 0), TopicPartition("t", 1)])) == {
            at for at in at_work if at.topic == "t"
        }


@given(st.lists(REQUESTS, max_size=10))
def test_of_a_topic_that_is_forgotten_nothing_is_left(steps: list[tuple[str, Any, Any]]) -> None:
    positions = StoredPositions()
    for number, (kind, by, what) in enumerate(steps):
        if kind == "end":
            positions.end(by, what, 0.0)
        elif kind == "store":
            positions.store(0.0, "member", 0, dict.fromkeys(what, Committed(number)))
        else:
            positions.hold(by, "member", 0, dict.fromkeys(what, Committed(number)))
    others = {at: kept for at, kept in positions.stored.items() if at.topic == "u"}
    positions.forget("t")
    assert positions.stored == others
    assert positions.unstable([TopicPartition("t", 0), TopicPartition("t", 1)]) == []
    for by in "xyz":
        assert all(
            at.topic == "u" for entry in positions.end(by, True, 0.0) for at in entry.offsets
        )
