"""What is known of the log of one partition. No I/O, no clock."""

from __future__ import annotations

from typing import NamedTuple


class LeaderAway(NamedTuple):
    """The leader of a partition does not answer."""

    reason: str
    # Monotonic.
    since: float


class OpenTransactionHold(NamedTuple):
    """An open transaction holds up the readers of a partition that read what is committed."""

    last_stable: int
    log_end: int
    # Since when the last stable offset has not moved; monotonic.
    since: float
    is_long: bool


class LogState:
    """What the broker has said of a partition's log."""

    __slots__ = ("end", "held_up", "leader_away", "run_end")

    def __init__(self) -> None:
        # Offset after the last record, as far as is known.
        self.end: int | None = None
        # Where a run ends that ends by itself.
        self.run_end: int | None = None
        self.leader_away: LeaderAway | None = None
        self.held_up: OpenTransactionHold | None = None

    def note_end(self, end: int | None) -> None:
        """The log ends here; None: its end has to be asked for."""
        self.end = end

    def note_run_end(self, end: int | None) -> None:
        """A run that ends by itself ends here; None: that has to be found out."""
        self.run_end = end

    def note_leader(self, away: LeaderAway | None) -> None:
        """Note that the leader does not answer; None: it does."""
        self.leader_away = away

    def note_hold(self, held_up: OpenTransactionHold | None) -> None:
        """Note that an open transaction holds up its readers; None: no transaction does."""
        self.held_up = held_up
