"""What one owner knows of a row, against a store that applies, loses and delays its writes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from reactive_kafka import Committed, TopicPartition
from reactive_kafka.checkpoint.owned_row import FENCED, ClientPartition, OwnedRow, PendingWrite
from reactive_kafka.checkpoint.store import Checkpoint, Write, allows
from reactive_kafka.tracking.tracker import OffsetTracker

PARTITION = TopicPartition("orders", 0)


def settled(tracker: OffsetTracker, until: int) -> None:
    """Deliver and settle the records up to *until*."""
    if until > tracker.position:
        count = until - tracker.position
        first = tracker.deliver(range(tracker.position, until), until)
        tracker.settle_range(first, first + count)


def owned_at(position: int | None, state: str | None = "loaded") -> tuple[OwnedRow, OffsetTracker]:
    owned = OwnedRow(PARTITION, ClientPartition("orders"), Checkpoint(3, position, state))
    tracker = OffsetTracker(PARTITION, position or 0)
    owned.begin(tracker)
    return owned, tracker


def fenced_s(client_partition: ClientPartition) -> float:
    """For how long the client does not claim a row that another owner takes now."""
    client_partition.fence(100.0)
    left_s = client_partition.fenced_for(100.0)
    assert left_s is not None
    return left_s


async def test_a_row_that_is_taken_again_and_again_is_claimed_ever_later_until_it_is_the_clients() -> (
    None
):
    client_partition = ClientPartition("orders")
    assert client_partition.fenced_for(100.0) is None
    first_s = fenced_s(client_partition)
    assert 0 < first_s <= 2 * FENCED.first_s
    assert client_partition.fenced_for(100.0 + first_s) == 0.0
    for _ in range(10):
        longest_s = fenced_s(client_partition)
    assert longest_s > 4 * FENCED.first_s
    client_partition.unfence()
    assert client_partition.fenced_for(100.0) is None
    assert fenced_s(client_partition) <= 2 * FENCED.first_s
    client_partition.assign()
    assert client_partition.fenced_for(100.0) is None


def test_an_assignment_begins_without_the_position_that_kafka_had_in_the_last_one() -> None:
    client_partition = ClientPartition("orders")
    client_partition.assign()
    client_partition.row = OwnedRow(PARTITION, client_partition, Checkpoint(3, 7, None))
    assert client_partition.not_in_kafka is None, "the row was not found to be the client's yet"
    client_partition.is_ours = True
    assert client_partition.not_in_kafka == Committed(7)
    client_partition.in_kafka = Committed(7)
    assert client_partition.not_in_kafka is None
    client_partition.revoke()
    client_partition.assign()
    client_partition.is_ours = True
    assert client_partition.not_in_kafka == Committed(7), "another member may have moved it"


def test_a_position_goes_with_the_state_set_before_it() -> None:
    owned, tracker = owned_at(10)
    settled(tracker, 12)
    owned.states.set(10, 0, "ten")
    owned.states.set(12, 2, "twelve")
    assert owned.pending_write(Committed(12, "m")).write == Write(
        3, Checkpoint(3, 12, "ten", "m"), 10
    )


def test_other_metadata_at_the_position_of_before_a_seek_leaves_its_state_alone() -> None:
    owned, tracker = owned_at(10)
    assert owned.begin(OffsetTracker(PARTITION, 4))
    assert owned.pending_write(Committed(10, "plan")).write.checkpoint == Checkpoint(
        4, 10, "loaded", "plan"
    )
    owned, tracker = owned_at(10)
    settled(tracker, 15)
    owned.states.set(14, 4, "fourteen")
    assert not owned.begin(OffsetTracker(PARTITION, 20))
    assert owned.pending_write(Committed(10, "plan")).write.checkpoint == Checkpoint(
        4, 10, "loaded", "plan"
    )
    assert owned.states.at_position(20) == "fourteen"


def test_other_metadata_at_the_position_of_before_a_seek_makes_no_record_a_duplicate() -> None:
    owned, _ = owned_at(10)
    owned.begin(OffsetTracker(PARTITION, 4))
    restated = owned.pending_write(Committed(10, "kept acks"))
    owned.sent(restated)
    assert not owned.has_sent(4)
    owned.confirmed(restated)
    assert owned.checkpoint == Checkpoint(4, 10, "loaded", "kept acks")
    assert not owned.has_stored(4)
    assert owned.is_due(Committed(5))


def test_a_row_with_another_token_is_ours_only_if_we_have_sent_it() -> None:
    owned, _ = owned_at(10)
    owned.begin(OffsetTracker(PARTITION, 4))
    back = owned.pending_write(Committed(5))
    assert back.write == Write(3, Checkpoint(4, 5, None), 10)
    owned.sent(back)
    assert owned.is_ours(Checkpoint(4, 5, None))
    assert not owned.is_ours(Checkpoint(4, 6, None))
    assert not owned.is_ours(Checkpoint(4, 10, "loaded"))
    assert owned.is_ours(Checkpoint(3, 10, "loaded"))


def test_what_a_request_for_records_of_before_a_seek_has_stored_makes_none_of_them_a_duplicate() -> (
    None
):
    owned, tracker = owned_at(10)
    settled(tracker, 20)
    # Its answer is lost.
    owned.sent(owned.pending_write(Committed(20)))
    owned.begin(OffsetTracker(PARTITION, 12))
    owned.found(Checkpoint(3, 20, "loaded"))
    assert not owned.has_stored(12)
    assert owned.is_due(Committed(13))
    assert owned.pending_write(Committed(13)).write.checkpoint.token == 4


def test_an_answer_that_comes_behind_that_of_a_later_write_says_nothing_of_the_row() -> None:
    owned, tracker = owned_at(10)
    settled(tracker, 20)
    slow = owned.pending_write(Committed(20))
    owned.sent(slow)
    owned.begin(OffsetTracker(PARTITION, 4))
    # A transaction has looked.
    owned.found(slow.write.checkpoint)
    back = owned.pending_write(Committed(5))
    owned.sent(back)
    owned.confirmed(back)
    owned.confirmed(slow)
    assert owned.checkpoint == back.write.checkpoint
    # So that the row is read before the next write.
    assert owned.is_unsure


def test_a_row_that_somebody_has_read_brings_its_state_along() -> None:
    owned, tracker = owned_at(10)
    first = tracker.deliver(range(10, 12), 12)
    owned.states.set(10, first, "of the first call")
    # A transaction, whose answer is lost.
    owned.sent(owned.pending_write(Committed(11)))
    # The handler is called again.
    owned.states.begin([10])
    owned.found(Checkpoint(3, 11, "of the first call"))
    tracker.settle(first)
    assert owned.has_stored(10)
    assert owned.states.get(11, tracker.is_open) == "of the first call"


def test_of_two_seeks_the_second_one_back_sees_no_state_of_the_place_between() -> None:
    owned, tracker = owned_at(None, None)
    first = tracker.deliver(range(1), 1)
    owned.states.set(0, first, "zero")
    tracker.settle(first)
    forward = OffsetTracker(PARTITION, 1)
    owned.begin(forward)
    assert owned.states.at_position(1) == "zero"
    tracker.close()
    owned.begin(OffsetTracker(PARTITION, 0))
    assert owned.states.at_position(1) is None


def test_a_seek_back_after_one_forward_sees_what_was_settled_before_both() -> None:
    owned, tracker = owned_at(10)
    settled(tracker, 15)
    # Not settled.
    tracker.deliver(range(15, 16), 16)
    for offset in range(10, 16):
        owned.states.set(offset, offset - 10, f"of {offset}")
    for start, state in ((20, "of 14"), (15, "of 14"), (12, "of 11"), (30, "of 11")):
        assert not owned.begin(OffsetTracker(PARTITION, start))
        assert (
            owned.states.at_position(start)
            == owned.states.get(start, lambda arrival: True)
            == state
        )
    assert owned.begin(OffsetTracker(PARTITION, 9))
    assert owned.states.at_position(9) is None


def test_what_the_store_has_confirmed_is_not_taken_back_by_a_lower_position_of_these_records() -> (
    None
):
    owned, tracker = owned_at(10)
    settled(tracker, 12)
    pending = owned.pending_write(Committed(12))
    owned.sent(pending)
    owned.confirmed(pending)
    assert owned.has_stored(11)
    assert not owned.is_due(Committed(11, "m"))


@settings(max_examples=150)
@given(st.data())
def test_whatever_becomes_of_writes_the_row_follows_what_is_settled_and_no_other_owners_is_touched(
    data: st.DataObject,
) -> None:
    row = Checkpoint(1, None, None)
    owned, tracker = owned_at(None, None)
    owned.checkpoint = row
    late: list[Write] = []
    is_fenced = False

    def sets_states() -> None:
        for offset in range(tracker.start, tracker.committable):
            owned.states.set(offset, offset - tracker.start, f"{tracker.start}:{offset}")

    for _ in range(data.draw(st.integers(1, 25))):
        step = data.draw(st.sampled_from(["ok", "lost", "late", "land", "seek", "other"]))
        if step == "land" and late:
            write = late.pop(0)
            row = write.checkpoint if allows(row, write) else row
        elif step == "seek":
            old, tracker = tracker, OffsetTracker(PARTITION, data.draw(st.integers(0, 40)))
            owned.begin(tracker)
            old.close()
        elif step == "other":
            row, is_fenced = row._replace(token=row.token + 1), True
        elif step in ("ok", "lost", "late") and not is_fenced:
            settled(tracker, tracker.position + data.draw(st.integers(1, 5)))
            sets_states()
            at = Committed(tracker.committable)
            for _ in range(5):
                if not owned.is_due(at):
                    break
                pending: PendingWrite = owned.pending_write(at)
                owned.sent(pending)
                if step == "late":
                    late.append(pending.write)
                    break
                stored = allows(row, pending.write)
                row = pending.write.checkpoint if stored else row
                if step == "lost":
                    break
                if stored:
                    owned.confirmed(pending)
                    break
                # Nobody else has written.
                assert owned.is_ours(row)
                owned.found(row)
            if step == "ok":
                assert row.position == tracker.committable
                assert row.state == f"{tracker.start}:{tracker.committable - 1}"
                assert owned.checkpoint == row
        if is_fenced:
            assert not owned.is_ours(row)
            assert not allows(row, owned.pending_write(Committed(tracker.committable)).write)
            assert not any(allows(row, write) for write in late)


def test_a_lower_position_of_these_records_does_not_take_back_what_a_transaction_has_stored() -> (
    None
):
    owned, tracker = owned_at(10)
    settled(tracker, 10)
    # A transaction, whose answer is lost.
    owned.sent(owned.pending_write(Committed(11)))
    owned.found(Checkpoint(3, 11, "loaded"))
    assert owned.has_stored(10)
    assert not owned.is_due(Committed(10, "m"))
    assert owned.is_due(Committed(11, "m"))
