"""Starts to read one partition: what its log is like, and what its last owner has left beside the
group's position.
"""

from __future__ import annotations

from reactive_kafka.assignment.client_parts import ClientParts
from reactive_kafka.observe.events import KeptAcksDropped, PlanDropped
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.tracking.metadata.codec import Metadata, decode
from reactive_kafka.tracking.plans import PlannedRange
from reactive_kafka.tracking.tracker import OffsetTracker


def take_over(
    parts: ClientParts,
    tracker: OffsetTracker,
    found: Committed | None,
    log_end: int,
    *,
    # The policy chose where reading begins.
    was_reset: bool,
    # A channel that was restarted goes on where it stood.
    is_resumed: bool,
) -> None:
    """Hand on to a new tracker what stands beside the position that the group had; tell what cannot
    be used.
    """
    if found is None or not found.metadata:
        return
    stored = decode(found.metadata, found.offset)
    if parts.keeps_plans and (is_resumed or was_reset or tracker.start == found.offset):
        _keep_plans(parts, tracker, stored, log_end, was_reset=was_reset)
    if parts.settings.keep_out_of_order_acks:
        _keep_acks(parts, tracker, stored, found.offset, log_end, was_reset=was_reset)


def _keep_plans(
    parts: ClientParts, tracker: OffsetTracker, stored: Metadata, log_end: int, *, was_reset: bool
) -> None:
    def dropped(reason: str, planned: PlannedRange | None = None) -> None:
        start, until = (None, None) if planned is None else planned[:2]
        partition = tracker.partition
        channel = parts.settings.name
        parts.observer.on(
            PlanDropped(
                channel=channel, partition=partition, start=start, until=until, reason=reason
            )
        )

    if stored.lost is not None and not was_reset:
        dropped(stored.lost)
    for planned in stored.plans:
        if was_reset:
            dropped(f"reading begins at {tracker.start}", planned)
        elif planned.start >= tracker.start:
            # Else it is done.
            if planned.until <= log_end:
                tracker.plan(planned)
            else:
                dropped(f"the log ends at {log_end}", planned)


def _keep_acks(
    parts: ClientParts,
    tracker: OffsetTracker,
    stored: Metadata,
    position: int,
    log_end: int,
    *,
    was_reset: bool,
) -> None:
    acks = stored.acks
    reason = stored.lost
    # Only who goes on at the group's own position takes the map over. Any other start is somebody's
    # wish to handle records again, those that were acked too.
    if acks is not None and (was_reset or tracker.start != position):
        reason = f"reading begins at {tracker.start}"
    elif acks is not None and acks.until > log_end:
        reason = f"they go up to {acks.until}, and the log ends at {log_end}"
    else:
        tracker.kept = acks
    if reason is not None:
        tell_acks_dropped(parts, tracker.partition, reason)


def tell_acks_dropped(parts: ClientParts, partition: TopicPartition, reason: str) -> None:
    """Tell that records are handled again, although their acks had been kept."""
    parts.observer.on(
        KeptAcksDropped(channel=parts.settings.name, partition=partition, reason=reason)
    )
