"""What keeps one partition from being fetched. No I/O, no clock."""

from __future__ import annotations

from reactive_kafka.partitions.readable_search import UnreadablePlace

NEVER = -1


class FetchState:
    """Whether a partition is paused at the client, left out of polls, or cannot be read."""

    __slots__ = ("is_paused", "left_out_round", "left_out_since", "unreadable")

    def __init__(self) -> None:
        # At the client.
        self.is_paused = False
        # The last round of polls that asked for nothing of it, and when the first of those rounds
        # was that followed each other; monotonic.
        self.left_out_round = NEVER
        self.left_out_since = 0.0
        self.unreadable: UnreadablePlace | None = None

    def begin_assignment(self) -> None:
        """The partition was assigned. The client has forgotten that it was paused."""
        self.is_paused = False
        self.left_out_round = NEVER
        self.unreadable = None

    def leave_out(self, number: int, now: float) -> float:
        """Round *number* of polls asks for nothing of it; returns for how long that has been so."""
        # Being polled for in between ends the wait. The number of the round tells that without a
        # look at all partitions in each round.
        if self.left_out_round != number - 1:
            self.left_out_since = now
        self.left_out_round = number
        return now - self.left_out_since

    def pause(self) -> None:
        """It is paused at the client."""
        self.is_paused = True

    def resume(self) -> None:
        """It is fetched again."""
        self.is_paused = False

    def note_unreadable(self, place: UnreadablePlace | None) -> None:
        """Note that a place of its log cannot be read; None: all of it can."""
        self.unreadable = place
