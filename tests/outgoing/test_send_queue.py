"""What waits to be written, against a model of a broker that takes parts of batches, refuses, and
answers late.
"""

from __future__ import annotations

import time
import zlib
from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reactive_kafka import TopicPartition
from reactive_kafka.outgoing.queue.receipt import CallbackReceipt, Receipt
from reactive_kafka.outgoing.queue.record import OutgoingRecord, QueuedRecord
from reactive_kafka.outgoing.queue.send_queue import MOST_KEYS, PartitionQueue, SendQueue
from reactive_kafka.records import RecordBytes, RecordFields

TOPICS = ("orders", "audit")
KEYS = [None, b"a", b"b", b"c"]


class Refused(Exception):
    pass


class Alone(QueuedRecord):
    """A record that nothing else belongs to."""

    def __init__(self, record: RecordBytes, told: list[BaseException | None]) -> None:
        self.value, self.key, self.headers, self.timestamp_ms = record
        self.told = told
        self.is_void = False

    @property
    def is_over(self) -> bool:
        return self.is_void or bool(self.told)

    def void(self) -> None:
        self.is_void = True

    def written(self, at: TopicPartition, offset: int) -> None:
        if not self.is_over:
            self.told.append(None)

    def fail(self, error: BaseException) -> None:
        if not self.is_over:
            self.told.append(error)


class Writing(RuleBasedStateMachine):
    """Senders, the queue of a channel, and a broker with as many partitions as the topic is found to
    have.
    """

    @initialize(most=st.integers(1, 5))
    def make(self, most: int) -> None:
        self.released = 0
        self.most = most
        self.begun: set[PartitionQueue] = set()
        self.queue = SendQueue(most, zlib.crc32, self.note_release, begin=self.begin)
        self.serial = 0
        self.told: dict[int, list[BaseException | None]] = {}
        self.receipts: dict[int, CallbackReceipt | Alone] = {}
        self.expected: dict[int, list[int]] = {}
        self.void: set[int] = set()
        self.accepted: list[int] = []
        self.stored: dict[TopicPartition, list[int]] = defaultdict(list)
        self.refused: set[int] = set()
        self.lines: dict[TopicPartition, PartitionQueue] = {}
        self.on_their_way: dict[TopicPartition, Sequence[RecordFields]] = {}
        self.partitions: dict[str, int] = {}
        # Records of partitions that were gone: they may come behind later ones.
        self.moved: set[int] = set()

    def note_release(self) -> None:
        self.released += 1

    def begin(self, line: PartitionQueue) -> None:
        self.begun.add(line)
        self.note_lines(line)

    def note_lines(self, *lines: PartitionQueue | None) -> None:
        for line in lines:
            if line is not None:
                self.lines[line.partition] = line

    @rule(
        topic=st.sampled_from(TOPICS),
        key=st.sampled_from(KEYS),
        partition=st.sampled_from([None, None, 0]),
        records=st.integers(1, 3),
    )
    def send(self, topic: str, key: bytes | None, partition: int | None, records: int) -> None:
        call = len(self.receipts)
        told: list[BaseException | None] = []
        receipt = CallbackReceipt(told.append)
        self.receipts[call], self.told[call], self.expected[call] = receipt, told, []
        for _ in range(records):
            if self.queue.room <= 0:
                break
            number, self.serial = self.serial, self.serial + 1
            self.expected[call].append(number)
            self.accepted.append(number)
            receipt.expect()
            self.queue.enter()
            outgoing = OutgoingRecord(topic, RecordBytes(str(number).encode(), key), partition)
            self.note_lines(self.queue.add(outgoing, receipt))
        receipt.seal()

    @rule(topic=st.sampled_from(TOPICS), key=st.sampled_from(KEYS))
    def send_where_all_is_known(self, topic: str, key: bytes | None) -> None:
        call, had_room, told = (
            len(self.receipts),
            self.queue.room > 0,
            list[BaseException | None](),
        )
        alone, before = (
            Alone(RecordBytes(str(self.serial).encode(), key), told),
            self.queue.in_flight,
        )
        if not self.queue.accept(alone, topic):
            assert self.queue.in_flight == before
            return
        assert had_room
        # Where it stands without a hurry.
        line = self.queue.place(Alone(RecordBytes(b"", key), []), topic)
        assert line is not None
        assert line.partition.topic == topic
        line.waiting.pop()
        assert line.waiting.pop() is alone
        line.waiting.append(alone)
        assert line in self.begun
        self.note_lines(line)
        self.accepted.append(self.serial)
        self.receipts[call], self.told[call], self.expected[call] = alone, told, [self.serial]
        self.serial += 1

    @rule(topic=st.sampled_from(TOPICS), partitions=st.integers(1, 3))
    def find(self, topic: str, partitions: int) -> None:
        self.partitions[topic] = partitions
        self.note_lines(*self.queue.partitions_found(topic, partitions))

    @rule(topic=st.sampled_from(TOPICS))
    def look(self, topic: str) -> None:
        self.queue.awaiting_partitions(topic)

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        waiting = [call for call, told in self.told.items() if not told and call not in self.void]
        if waiting:
            call = data.draw(st.sampled_from(waiting))
            self.void.add(call)
            self.receipts[call].void()

    @precondition(lambda self: any(to not in self.on_their_way for to in self.lines))
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        to = data.draw(st.sampled_from(sorted(set(self.lines) - set(self.on_their_way))))
        if batch := self.lines[to].next_batch():
            self.on_their_way[to] = batch

    @precondition(lambda self: self.on_their_way)
    @rule(data=st.data(), outcome=st.sampled_from(["stored", "part", "away", "refused"]))
    def answer(self, data: st.DataObject, outcome: str) -> None:
        to = data.draw(st.sampled_from(sorted(self.on_their_way)))
        batch, line = self.on_their_way.pop(to), self.lines[to]
        numbers = [int(record.value or b"") for record in batch]
        if outcome in ("stored", "part"):
            count = len(batch) if outcome == "stored" else data.draw(st.integers(1, len(batch)))
            offset = len(self.stored[to])
            self.stored[to] += numbers[:count]
            line.written(offset, count)
        elif self.place_again(line):
            pass
        elif outcome == "refused":
            error = Refused()
            if line.refused(error):
                self.refused.add(numbers[0])
                assert len(batch) == 1
            else:
                assert len(batch) > 1, "a single record that is refused fails"

    def place_again(self, line: PartitionQueue) -> bool:
        numbers = {int(record.value or b"") for record in line.unwritten()}
        was_there = line.partition.partition < self.partitions[line.partition.topic]
        is_placed = self.queue.place_again(line)
        left = {int(record.value or b"") for record in line.unwritten()}
        self.moved |= numbers - left
        assert is_placed == (numbers != left)
        assert not (was_there and is_placed)
        assert was_there or not left
        return is_placed

    @invariant()
    def each_partition_has_its_records_once_and_in_the_order_of_sending(self) -> None:
        for stored in self.stored.values():
            in_order = [number for number in stored if number not in self.moved]
            assert in_order == sorted(set(in_order))
        moved = [
            number for stored in self.stored.values() for number in stored if number in self.moved
        ]
        assert len(moved) == len(set(moved))

    @invariant()
    def a_receipt_is_told_once_and_of_all_its_records(self) -> None:
        everywhere = {number for stored in self.stored.values() for number in stored}
        for call, told in self.told.items():
            assert len(told) <= 1
            numbers = self.expected[call]
            if call in self.void:
                continue
            if told and told[0] is None:
                assert everywhere.issuperset(numbers)
            elif told:
                assert self.refused.intersection(numbers)
            else:
                assert not everywhere.union(self.refused).issuperset(numbers)
                assert not self.refused.intersection(numbers)

    @invariant()
    def what_is_in_flight_never_exceeds_the_bound(self) -> None:
        assert 0 <= self.queue.in_flight <= self.most

    @invariant()
    def nothing_is_lost(self) -> None:
        settled = {number for stored in self.stored.values() for number in stored} | self.refused
        wanted = {
            number
            for call, numbers in self.expected.items()
            for number in numbers
            if call not in self.void and not self.told[call]
        }
        assert len(wanted - settled) <= self.queue.in_flight <= len(set(self.accepted) - settled)

    def teardown(self) -> None:
        """Everything that somebody waits for comes to its end once the broker works."""
        for topic in TOPICS:
            self.partitions[topic] = 2
            self.note_lines(*self.queue.partitions_found(topic, 2))
        for _, line in sorted(self.lines.items()):
            self.place_again(line)
        for to, line in sorted(self.lines.items()):
            assert to.partition < 2 or not list(line.unwritten())
            while batch := line.next_batch():
                self.stored[to] += [int(record.value or b"") for record in batch]
                line.written(0, len(batch))
        assert self.queue.in_flight == 0
        assert not list(self.queue.unwritten())
        assert all(self.told[call] or call in self.void for call in self.told)


TestWriting = Writing.TestCase


@given(st.lists(st.integers(1, 4), min_size=1, max_size=30))
def test_records_without_a_key_go_round_the_partitions_batch_by_batch(sizes: list[int]) -> None:
    queue = SendQueue(1000, zlib.crc32, lambda: None)
    queue.partitions_found("orders", 3)
    went = []
    for size in sizes:
        lines = set()
        for _ in range(size):
            queue.enter()
            line = queue.add(
                OutgoingRecord("orders", RecordBytes(b"x")), CallbackReceipt(lambda _: None)
            )
            assert line is not None
            lines.add(line)
        (line,) = lines
        went.append(line.partition.partition)
        assert len(line.next_batch()) == size
        line.written(0, size)
    assert went == [number % 3 for number in range(len(sizes))]


@given(
    partitions=st.integers(2, 5),
    steps=st.lists(st.integers(0, 4), max_size=200),
)
def test_no_record_without_a_key_goes_where_a_batch_is_repeated_while_others_are_answered(
    partitions: int, steps: list[int]
) -> None:
    queue = SendQueue(1000, zlib.crc32, lambda: None)
    queue.partitions_found("orders", partitions)
    on_their_way: dict[PartitionQueue, int] = {}

    def send() -> PartitionQueue:
        queue.enter()
        line = queue.add(
            OutgoingRecord("orders", RecordBytes(b"x")), CallbackReceipt(lambda _: None)
        )
        assert line is not None
        if line not in on_their_way:
            on_their_way[line] = len(line.next_batch())
        return line

    away = send()
    is_repeated = False
    for step in steps:
        if step == 0:
            on_their_way[away] = len(away.next_batch())
            is_repeated = True
        elif step == 1:
            # The oldest batch is answered, but for that of the broker that is away.
            line = next((line for line in on_their_way if line is not away), None)
            if line is not None:
                line.written(0, on_their_way.pop(line))
                if batch := line.next_batch():
                    on_their_way[line] = len(batch)
        else:
            is_one_free = len(on_their_way) < partitions
            assert send() is not away or not (is_repeated or is_one_free)


@given(
    counts=st.lists(st.integers(1, 9), min_size=2, max_size=6),
    keys=st.lists(st.one_of(st.none(), st.binary(max_size=2)), min_size=1, max_size=6),
)
def test_a_key_goes_by_the_number_of_partitions_that_the_topic_has_now(
    counts: list[int], keys: list[bytes | None]
) -> None:
    took = list[PartitionQueue]()
    queue = SendQueue(1000, zlib.crc32, lambda: None, begin=took.append, lingers=True)
    for count in counts:
        queue.partitions_found("orders", count)
        for key in keys:
            record = Alone(RecordBytes(b"x", key), [])
            if not queue.accept(record, "orders"):
                queue.enter()
                line = queue.place(record, "orders")
                assert line is not None
                took.append(line)
            assert took[-1].waiting[-1] is record
            number = took[-1].partition.partition
            assert number < count
            assert key is None or number == zlib.crc32(key) % count


def test_a_partition_that_comes_back_has_the_line_that_it_had() -> None:
    queue = SendQueue(1000, zlib.crc32, lambda: None)
    queue.partitions_found("orders", 2)

    def send() -> PartitionQueue | None:
        queue.enter()
        return queue.add(
            OutgoingRecord("orders", RecordBytes(b""), 1), CallbackReceipt(lambda _: None)
        )

    line = send()
    queue.partitions_found("orders", 1)
    queue.partitions_found("orders", 2)
    assert send() is line
    assert line is not None
    assert len(line.next_batch()) == 2


def refused_count(queue: SendQueue, line: PartitionQueue) -> int:
    """Refuse whatever is written to a partition; returns after how many refusals nothing waits."""
    for refusals in range(100):
        if not line.next_batch():
            return refusals
        if not queue.place_again(line):
            line.refused(Refused())
    raise AssertionError("it is written again and again")


def test_records_of_a_partition_that_is_gone_go_to_others_unless_their_sender_has_named_it() -> (
    None
):
    begun = list[PartitionQueue]()
    queue = SendQueue(1000, zlib.crc32, lambda: None, begin=begun.append)
    queue.partitions_found("orders", 3)
    told: dict[str, list[BaseException | None]] = {}
    key = next(bytes([n]) for n in range(99) if zlib.crc32(bytes([n])) % 3 == 2)
    for name, partition in [("first", None), ("named", 2), ("second", None)]:
        queue.enter()
        told[name] = []
        line = queue.place(Alone(RecordBytes(name.encode(), key), told[name]), "orders", partition)
    assert line is not None
    assert len(line.next_batch()) == 3
    queue.enter()
    told["third"] = []
    queue.place(Alone(RecordBytes(b"third", key), told["third"]), "orders")
    queue.partitions_found("orders", 1)
    assert refused_count(queue, line) == 2
    (other,) = set(begun)
    assert other.partition == TopicPartition("orders", 0)
    assert [record.value for record in other.next_batch()] == [b"first", b"second", b"third"]
    other.written(0, 3)
    (reason,) = told.pop("named")
    assert isinstance(reason, Refused)
    assert list(told.values()) == [[None]] * 3
    assert queue.in_flight == 0


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.booleans())
def test_what_is_refused_in_a_partition_that_is_gone_comes_to_an_end(
    names: list[bool], raises: bool
) -> None:
    def choose(key: bytes | None, count: int) -> int:
        if raises and count == 1:
            raise ValueError("a bug")
        return count - 1

    queue = SendQueue(1000, zlib.crc32, lambda: None, choose)
    queue.partitions_found("orders", 2)
    told: list[list[BaseException | None]] = [[] for _ in names]
    for outcomes, is_named in zip(told, names, strict=True):
        queue.enter()
        record = Alone(RecordBytes(b"x"), outcomes)
        line = queue.place(record, "orders", 1 if is_named else None)
        assert line is not None
    line.next_batch()
    queue.partitions_found("orders", 1)
    refused_count(queue, line)
    for outcomes, is_named in zip(told, names, strict=True):
        assert len(outcomes) == (is_named or raises)
    assert queue.in_flight == told.count([])


class Noted(Receipt):
    def report(self, error: BaseException | None) -> None:
        assert error is None


def test_a_broker_that_tells_no_offset_has_stored_nothing_anywhere_else() -> None:
    queue, receipts = SendQueue(1000, zlib.crc32, lambda: None), [Noted(), Noted()]
    queue.partitions_found("orders", 1)
    for receipt in receipts:
        queue.enter()
        line = queue.add(OutgoingRecord("orders", RecordBytes(b"")), receipt)
    assert line is not None
    line.next_batch()
    line.written(-1, 2)
    assert [receipt.offset for receipt in receipts] == [-1, -1]


def test_a_refused_batch_is_tried_record_by_record_and_what_came_behind_it_in_batches_again() -> (
    None
):
    queue, told = SendQueue(1000, zlib.crc32, lambda: None), list[tuple[int, bool]]()
    queue.partitions_found("orders", 1)

    def send(number: int) -> PartitionQueue:
        queue.enter()
        receipt = CallbackReceipt(lambda error: told.append((number, error is None)))
        line = queue.add(OutgoingRecord("orders", RecordBytes(str(number).encode())), receipt)
        assert line is not None
        receipt.expect()
        receipt.seal()
        return line

    for number in range(3):
        line = send(number)
    assert len(line.next_batch()) == 3
    assert not line.refused(Refused())
    for number in range(3, 6):
        send(number)
    sizes = []
    while batch := line.next_batch():
        sizes.append(len(batch))
        if batch[0].value == b"1":
            assert line.refused(Refused())
        else:
            line.written(0, len(batch))
    assert sizes == [1, 1, 1, 3]
    assert told == [(0, True), (1, False), (2, True), (3, True), (4, True), (5, True)]


def test_records_of_a_refused_batch_that_are_given_up_are_not_waited_for() -> None:
    queue = SendQueue(1000, zlib.crc32, lambda: None)
    queue.partitions_found("orders", 1)

    def send(number: int) -> tuple[PartitionQueue, Alone]:
        queue.enter()
        record = Alone(RecordBytes(str(number).encode()), [])
        line = queue.place(record, "orders")
        assert line is not None
        return line, record

    sent = [send(number) for number in range(4)]
    line = sent[0][0]
    assert len(line.next_batch()) == 4
    assert not line.refused(Refused())
    for _, record in sent[1:]:
        record.void()
    for number in range(4, 7):
        send(number)
    values = []
    while batch := line.next_batch():
        values.append([record.value for record in batch])
        line.written(0, len(batch))
    assert values == [[b"0"], [b"4", b"5", b"6"]]


def test_records_whose_partitions_cannot_be_found_out_fail_and_take_up_no_room() -> None:
    released = list[int]()
    queue = SendQueue(3, zlib.crc32, lambda: released.append(queue.room))
    records = [Alone(RecordBytes(b"x"), []) for _ in range(3)]
    for record, topic in zip(records, ("orders", "orders", "audit"), strict=True):
        queue.enter()
        assert queue.place(record, topic) is None
    refusal = Refused()
    queue.partitions_unknown("orders", refusal)
    assert [record.told for record in records] == [[refusal], [refusal], []]
    assert released == [2]
    assert list(queue.unwritten()) == [records[2]]
    assert not queue.awaits_partitions("orders")


def test_who_raises_when_it_is_told_keeps_nobody_else_from_being_told() -> None:
    queue, told = SendQueue(10, zlib.crc32, lambda: None), list[int]()
    queue.partitions_found("orders", 1)

    def hear(number: int) -> None:
        told.append(number)
        if number == 0:
            raise Refused

    for number in range(3):
        queue.enter()
        receipt = CallbackReceipt(lambda _, number=number: hear(number))
        line = queue.add(OutgoingRecord("orders", RecordBytes(b"x")), receipt)
        receipt.expect()
        receipt.seal()
    assert line is not None
    assert len(line.next_batch()) == 3
    with pytest.raises(Refused):
        line.written(0, 3)
    assert told == [0, 1, 2]
    assert queue.in_flight == 0


def test_where_records_without_a_key_go_next_costs_the_same_for_ten_thousand_busy_partitions() -> (
    None
):
    queue = SendQueue(100_000, zlib.crc32, lambda: None)
    queue.partitions_found("orders", 10_000)

    def send() -> PartitionQueue:
        queue.enter()
        line = queue.add(
            OutgoingRecord("orders", RecordBytes(b"x")), CallbackReceipt(lambda _: None)
        )
        assert line is not None
        return line

    busy = []
    for _ in range(10_000):
        line = send()
        busy.append((line, len(line.next_batch())))
    assert len({line.partition for line, _ in busy}) == 10_000
    began = time.process_time()
    # With each answer the partition takes what waits there, and records collect somewhere else.
    for line, count in busy:
        line.written(0, count)
        send()
        line.next_batch()
    # Looking at each of the 10,000 partitions each time takes half a minute.
    assert time.process_time() - began < 3.0


def test_the_partitions_of_the_last_keys_are_remembered_and_no_more_of_them() -> None:
    queue = SendQueue(10 * MOST_KEYS, zlib.crc32, lambda: None)
    queue.partitions_found("orders", 2)
    receipt = CallbackReceipt(lambda _: None)

    def send(number: int) -> None:
        queue.enter()
        queue.add(OutgoingRecord("orders", RecordBytes(b"x", b"%d" % number)), receipt)

    def is_remembered(number: int) -> bool:
        # Otherwise the key would have to be hashed, which takes the longer way.
        return queue.accept(Alone(RecordBytes(b"x", b"%d" % number), []), "orders")

    for number in range(MOST_KEYS):
        send(number)
    assert is_remembered(0)
    send(MOST_KEYS)
    assert is_remembered(MOST_KEYS)
    assert not any(is_remembered(number) for number in range(MOST_KEYS))
