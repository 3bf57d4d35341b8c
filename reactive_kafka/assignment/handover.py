"""Takes over what the last owner of a partition has stored with its position: plans and acks."""

from __future__ import annotations

from reactive_kafka.assignment.history import AssignmentReports
from reactive_kafka.records import Committed
from reactive_kafka.tracking.metadata.codec import Metadata, decode
from reactive_kafka.tracking.tracker import OffsetTracker


class Handover:
    """Takes over plans and kept acks, and reports those that cannot be used.

    Args:
        keeps_plans: Ranges that the last owner has planned are handled as planned.
        keeps_acks: Records that the last owner has acked are not delivered again.
    """

    def __init__(self, reports: AssignmentReports, *, keeps_plans: bool, keeps_acks: bool) -> None:
        self._reports = reports
        self._keeps_plans = keeps_plans
        self._keeps_acks = keeps_acks

    def take_over(
        self,
        tracker: OffsetTracker,
        found: Committed | None,
        log_end: int,
        *,
        was_reset: bool,
        is_resumed: bool,
    ) -> None:
        """Give a new tracker what was stored with the position that the group had.

        Args:
            found: The group's position, and the string stored with it.
            was_reset: The policy chose where reading begins.
            is_resumed: A channel that was restarted continues from its old position.
        """
        if found is None or not found.metadata:
            return
        stored = decode(found.metadata, found.offset)
        goes_on = is_resumed or was_reset or tracker.start == found.offset
        if self._keeps_plans and goes_on:
            self._take_plans(tracker, stored, log_end, was_reset=was_reset)
        if self._keeps_acks:
            self._take_acks(tracker, stored, found.offset, log_end, was_reset=was_reset)

    def _take_plans(
        self, tracker: OffsetTracker, stored: Metadata, log_end: int, *, was_reset: bool
    ) -> None:
        dropped = self._reports.plan_dropped
        if stored.lost is not None and not was_reset:
            dropped(tracker.partition, stored.lost)
        for planned in stored.plans:
            if was_reset:
                dropped(tracker.partition, f"reading begins at {tracker.start}", planned)
            elif planned.start < tracker.start:
                # It is done: a restarted channel continues behind it.
                continue
            elif planned.until <= log_end:
                tracker.plan(planned)
            else:
                dropped(tracker.partition, f"the log ends at {log_end}", planned)

    def _take_acks(
        self,
        tracker: OffsetTracker,
        stored: Metadata,
        position: int,
        log_end: int,
        *,
        was_reset: bool,
    ) -> None:
        acks = stored.acks
        reason = stored.lost
        # Only a tracker that continues at the group's own position takes the acks over. Any other
        # start was chosen to handle records again, those that were acked too.
        if acks is not None and (was_reset or tracker.start != position):
            reason = f"reading begins at {tracker.start}"
        elif acks is not None and acks.until > log_end:
            reason = f"they go up to {acks.until}, and the log ends at {log_end}"
        else:
            tracker.kept = acks
        if reason is not None:
            self._reports.acks_dropped(tracker.partition, reason)
