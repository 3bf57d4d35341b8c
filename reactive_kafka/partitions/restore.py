"""What whoever had a partition before has left beside the group's position: planned ranges, and acks above it."""

from __future__ import annotations

from reactive_kafka.commit.metadata.codec import decode
from reactive_kafka.commit.plans import PlannedRange
from reactive_kafka.commit.tracker import OffsetTracker
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.observe.events import KeptAcksDropped, Observer, PlanDropped
from reactive_kafka.records import Committed, TopicPartition


class StoredMetadata:
    """Hands on to new trackers what their partitions' last owners knew, and tells what cannot be used.

    Args:
        keeps_plans: What begins at the group's position keeps to the ranges that were planned beyond it.
    """

    def __init__(self, settings: IncomingSettings, observer: Observer, *, keeps_plans: bool) -> None:
        self._channel = settings.name
        self._keeps_plans = keeps_plans
        self._keeps_acks = settings.keep_out_of_order_acks
        self._observer = observer

    def hand_on(
        self, tracker: OffsetTracker, found: Committed | None, log_end: int, *, was_reset: bool, is_resumed: bool
    ) -> None:
        """Read what stands beside the position that the group had *found* at the assignment.

        Args:
            was_reset: The policy chose where reading begins.
            is_resumed: A channel that was restarted goes on where it stood.
        """
        if found is None or not found.metadata:
            return
        if self._keeps_plans and (is_resumed or was_reset or tracker.start == found.offset):
            self._keep_plans(tracker, found, log_end, was_reset=was_reset)
        if self._keeps_acks:
            self._keep_acks(tracker, found, log_end)

    # -- plans

    def _keep_plans(self, tracker: OffsetTracker, found: Committed, log_end: int, *, was_reset: bool) -> None:
        stored = decode(found.metadata, found.offset)
        if was_reset:
            for planned in stored.plans:
                self._tell_dropped(tracker.partition, f"reading begins at {tracker.start}", planned)
            return
        if stored.lost is not None:
            self._tell_dropped(tracker.partition, stored.lost)
        for planned in stored.plans:
            if planned.start < tracker.start:
                continue  # it is done
            if planned.until <= log_end:
                tracker.plan(planned)
            else:
                self._tell_dropped(tracker.partition, f"the log ends at {log_end}", planned)

    def _tell_dropped(self, partition: TopicPartition, reason: str, planned: PlannedRange | None = None) -> None:
        start, until = (None, None) if planned is None else planned[:2]
        self._observer.on(
            PlanDropped(channel=self._channel, partition=partition, start=start, until=until, reason=reason)
        )

    # -- kept acks

    def _keep_acks(self, tracker: OffsetTracker, found: Committed, log_end: int) -> None:
        stored = decode(found.metadata, found.offset)
        acks, reason = stored.acks, stored.lost
        # Only who goes on at the group's own position takes the map over. Any other start is somebody's wish to handle
        # records again, those that were acked too.
        if acks is not None and tracker.start != found.offset:
            reason = f"reading begins at {tracker.start}"
        elif acks is not None and acks.until > log_end:
            reason = f"they go up to {acks.until}, and the log ends at {log_end}"
        else:
            tracker.kept = acks
        if reason is not None:
            self._tell_acks_dropped(tracker.partition, reason)

    def left_behind(self, old: OffsetTracker, log_start: int, log_end: int) -> None:
        """The position of a partition is not in its log any more: what was known of the records behind it is void."""
        if old.kept is not None and old.kept.until > old.position:
            self._tell_acks_dropped(old.partition, f"the log goes from {log_start} to {log_end}")

    def _tell_acks_dropped(self, partition: TopicPartition, reason: str) -> None:
        self._observer.on(KeptAcksDropped(channel=self._channel, partition=partition, reason=reason))
