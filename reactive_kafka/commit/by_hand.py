"""Whether a position that somebody asks for may be committed. No I/O, no clock."""

from __future__ import annotations

from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.errors import CommitRefusedError
from reactive_kafka.records import TopicPartition


def check_offset(partition: TopicPartition, position: int) -> None:
    """Check that it can be a position at all.

    Raises:
        ValueError: It is no offset.
    """
    if isinstance(position, bool) or not isinstance(position, int) or position < 0:
        raise ValueError(f"a position to commit is an offset from 0 on, not {position!r} (for {partition})")


def check_position(
    partition: TopicPartition, tracker: OffsetTracker | None, position: int, *, is_in_doubt: bool
) -> None:
    """Check that a position of a partition of ours may be committed.

    Args:
        tracker: None while reading has not begun.
        is_in_doubt: Nobody knows whether the highest position that was sent is stored.

    Raises:
        CommitRefusedError: It would pass an unsettled record, lies inside of a planned range, or goes back.
    """
    why = "reading has not begun there yet" if tracker is None else _why_not(tracker, position, is_in_doubt)
    if why is not None:
        raise CommitRefusedError(f"{partition}: position {position} was not committed: {why}")


def _why_not(tracker: OffsetTracker, position: int, is_in_doubt: bool) -> str | None:
    if position > tracker.safe:
        return _not_settled(tracker)
    if (start := tracker.outside_plans(position)) != position:
        return f"it lies inside of a range that is handled as one, from {start} on"
    least = tracker.start if tracker.uncommitted_from < 0 else tracker.uncommitted_from
    if position < least:
        return f"that would go back from {least}"
    if is_in_doubt and position < tracker.attempted:
        return f"that would go back from {tracker.attempted}, which may have been stored"
    return None


def _not_settled(tracker: OffsetTracker) -> str:
    if tracker.window:
        return f"the record at offset {tracker.safe} is not settled"
    return f"records from {tracker.position} on have not been read"
