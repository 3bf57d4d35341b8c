"""One partition of one client until it has gone: its states as a table, and what is true of it. No
I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from reactive_kafka.commit.metadata.pending import (
    MetadataPolicy,
    OffsetMetadata,
    PendingCommit,
    may_be_due,
)
from reactive_kafka.commit.tracker import OffsetTracker, UnknownCommits
from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.partitions.start import Where
from reactive_kafka.partitions.unreadable import Unreadable
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import Ranges


class PartitionState(Enum):
    """Where a partition stands. Its tracker takes verdicts in all of them; positions are committed
    in four.
    """

    # Members are looked up in sets for every partition, also in each poll; Enum's own hash is a
    # function in Python.
    __hash__ = object.__hash__

    ASSIGNED = "ours; the hooks of the assignment have not run"
    LOCATING = "ours; the position to read from is being found"
    RETAINED = "ours again as we left it; commits go on, reading waits for the hooks"
    STARTING = "ours; the position is known, and is committed first where only we know it"
    READING = "ours; records come in and are handled"
    DRAINING = "about to go; no record is taken any more, what is settled is still committed"
    SUSPENDED = "revoked; its records wait to hear whether it is retained, and nothing is committed"
    GONE = "another member's, or nobody's; verdicts are refused"


S = PartitionState

TRANSITIONS: dict[PartitionState, dict[str, PartitionState]] = {
    S.ASSIGNED: {
        "open": S.LOCATING,
        "retain": S.RETAINED,
        "start": S.STARTING,
        "relocate": S.ASSIGNED,
        "drain": S.SUSPENDED,
        "revoke": S.SUSPENDED,
        "lose": S.GONE,
    },
    S.LOCATING: {
        "open": S.LOCATING,
        "retain": S.RETAINED,
        "start": S.STARTING,
        "relocate": S.LOCATING,
        "drain": S.SUSPENDED,
        "revoke": S.SUSPENDED,
        "lose": S.GONE,
    },
    S.RETAINED: {
        "open": S.RETAINED,
        "start": S.STARTING,
        "read": S.READING,
        "relocate": S.ASSIGNED,
        "drain": S.DRAINING,
        "revoke": S.SUSPENDED,
        "lose": S.GONE,
    },
    S.STARTING: {
        "open": S.STARTING,
        "start": S.STARTING,
        "read": S.READING,
        "relocate": S.LOCATING,
        "drain": S.DRAINING,
        "revoke": S.SUSPENDED,
        "lose": S.GONE,
    },
    S.READING: {
        "start": S.READING,
        "relocate": S.LOCATING,
        "drain": S.DRAINING,
        "revoke": S.SUSPENDED,
        "lose": S.GONE,
    },
    S.DRAINING: {
        "open": S.DRAINING,
        "start": S.DRAINING,
        "relocate": S.DRAINING,
        "drain": S.DRAINING,
        "revoke": S.SUSPENDED,
        "lose": S.GONE,
    },
    S.SUSPENDED: {"assign": S.ASSIGNED, "relocate": S.SUSPENDED, "lose": S.GONE},
    S.GONE: {},
}
"""State -> event -> the next state.

``open``: the hooks of the assignment have run; ``retain``: it was ours in the last generation, and
the group has the position as we left it; ``start``: the position to read from was found, also for a
seek (reading goes on until then); ``read``: that position is committed where it has to be, and
records may come; ``relocate``: the place that was known is void, by a seek before reading has
started or because another owner has taken the row in the checkpoint store over; ``drain``: a
revocation or a stop has begun, and handlers that run may finish; ``revoke``: the last commit is
over; ``assign``: the next assignment brings it again; ``lose``: the next assignment does not, or
none will come."""

COMMITTING = frozenset({S.RETAINED, S.STARTING, S.READING, S.DRAINING})
OURS = frozenset({S.ASSIGNED, S.LOCATING, S.RETAINED, S.STARTING, S.READING, S.DRAINING})
PENDING = frozenset({S.ASSIGNED, S.LOCATING, S.RETAINED, S.STARTING})


class IllegalStateError(Exception):
    """An event came in a state that has no place for it: a bug of ours. Nothing was changed."""

    def __init__(self, partition: TopicPartition, state: PartitionState, event: str) -> None:
        super().__init__(f"{partition} is {state.name}: {event!r} cannot come now")


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Where somebody wants reading to start; two of the same place are two."""

    where: Where
    # It is where the channel stood when it was restarted.
    is_resumed: bool = False
    # Why what the group has says nothing: the topic was made anew, and is read from there.
    void: str | None = None


class Partition:
    """What one client knows of one of its partitions."""

    __slots__ = (
        "assignment",
        "behind",
        "chosen",
        "end",
        "generation",
        "has_hooks",
        "holds",
        "id",
        "is_open",
        "is_paused",
        "is_void",
        "lane",
        "left_out_in",
        "left_out_since",
        "metadata",
        "noted_end",
        "ranges",
        "silent",
        "sought",
        "stands",
        "state",
        "stored",
        "tracker",
        "unknown",
        "unreadable",
    )

    def __init__(
        self,
        id: TopicPartition,
        policy: MetadataPolicy,
        chosen: Choice | None = None,
        ranges: Ranges | None = None,
    ) -> None:
        self.id = id
        # What is read of it; None: all, without an end.
        self.ranges = ranges
        # Where a run ends that ends by itself.
        self.noted_end: int | None = None
        # Changed by go() only.
        self.state = S.ASSIGNED
        # The number of its assignment to this client: what was asked for an earlier one is void.
        self.assignment = 0
        # In which it was ours last.
        self.generation = -1
        # None before reading has started.
        self.tracker: OffsetTracker | None = None
        # There is one as long as there is a tracker.
        self.lane: Lane | None = None
        # commits
        # The group's position, as far as is known; None: none, or none of the log's.
        self.stored: int | None = None
        # Positions that may be stored for a place that was left by a seek.
        self.behind = range(0)
        # The request in flight stores nothing for it: it was another member's since that was sent.
        self.is_void = False
        self.unknown = UnknownCommits()
        self.metadata = OffsetMetadata(policy)
        # where reading starts
        # By the settings or a restart, until it has.
        self.chosen = chosen
        # By a seek in this assignment that has not been carried out.
        self.sought: Choice | None = None
        # The hooks of the assignment have run.
        self.is_open = False
        # The assigned hooks have run for it, the revoked ones have not.
        self.has_hooks = False
        # fetching
        # Offset after the last record of the log, as far as is known.
        self.end: int | None = None
        # It may hold records that take room.
        self.holds = False
        # What of its log cannot be read now.
        self.unreadable: Unreadable | None = None
        # Why its leader does not answer, and since when.
        self.silent: tuple[str, float] | None = None
        # where an open transaction holds it up: the last stable offset, the log's end, since when,
        # and whether for long
        self.stands: tuple[int, int, float, bool] | None = None
        # At the client.
        self.is_paused = False
        # The last round of polls that asked for nothing of it.
        self.left_out_in = -1
        self.left_out_since = 0.0

    def __repr__(self) -> str:
        return f"<Partition {self.id} {self.state.name}>"

    def go(self, event: str) -> None:
        """Move to the state that *event* leads to; IllegalStateError where it has no place in the
        state.
        """
        to = TRANSITIONS[self.state].get(event)
        if to is None:
            raise IllegalStateError(self.id, self.state, event)
        self.state = to

    @property
    def live(self) -> OffsetTracker | None:
        """The tracker whose positions are committed; None: there is none, or its partition may not
        be retained.
        """
        return self.tracker if self.state in COMMITTING else None

    @property
    def left(self) -> OffsetTracker | None:
        """The tracker that waits to hear whether the partition is retained."""
        return None if self.state in COMMITTING else self.tracker

    @property
    def is_ours(self) -> bool:
        """Whether it is of the assignment, also where it is about to go."""
        return self.state in OURS

    @property
    def is_read(self) -> bool:
        """Whether polls ask for its records."""
        return self.state is S.READING

    @property
    def is_read_out(self) -> bool:
        """Whether what is to be read of it has an end, and has been read."""
        return (
            self.ranges is not None
            and self.tracker is not None
            and self.tracker.position >= self.ranges.end
        )

    @property
    def is_pending(self) -> bool:
        """Whether it is ours, and reading has not started."""
        return self.state in PENDING

    @property
    def choice(self) -> Choice | None:
        """Where reading is to start, if somebody has said so: in the last seek, else in the
        settings, or a restart.
        """
        return self.sought or self.chosen

    @property
    def in_flight(self) -> int:
        """Records with a handler, or with the application, and without a verdict."""
        return 0 if self.tracker is None else self.tracker.open - self.queued

    @property
    def queued(self) -> int:
        """Records that no worker has taken, those that are not due yet among them."""
        return 0 if self.lane is None else self.lane.waiting + len(self.lane.delayed)

    @property
    def running(self) -> int:
        """Workers that run records of it."""
        return 0 if self.lane is None else self.lane.workers

    def unmoved(self, tracker: OffsetTracker) -> int:
        """The position to commit where only the strings beside it have changed: the group's own."""
        if self.unknown and tracker.attempted > tracker.start:
            # It may be stored, and the group does not go back.
            return tracker.attempted
        return tracker.start if self.stored is None else self.stored

    def may_be_stored(self, tracker: OffsetTracker) -> bool:
        """Whether it is not known if the position to commit where none has moved is the group's."""
        is_it = bool(self.unknown) and tracker.attempted == self.unmoved(tracker)
        return is_it and tracker.uncommitted_from < tracker.attempted != self.stored

    def restated(self, tracker: OffsetTracker) -> PendingCommit | None:
        """Strings of acks, and kept acks, that are to stand beside a position that has not
        moved.
        """
        is_new = self.may_be_stored(tracker)
        return self.metadata.restated(
            tracker, self.unmoved(tracker), is_new=is_new, is_in_doubt=bool(self.unknown)
        )

    def lacks_plans(self, tracker: OffsetTracker) -> bool:
        """Whether the group may have other plans beside its position than the tracker, which is
        live.
        """
        return self.metadata.lacks_plans(
            tracker, self.unmoved(tracker), is_in_doubt=bool(self.unknown)
        )

    def divide_plan(self, tracker: OffsetTracker) -> bool:
        """Divide the plan that the group's position lies inside of, after a seek back; False if
        there is none.
        """
        # A plan cannot be stored there, and would be cut in another way from there on.
        at = self.unmoved(tracker)
        across = next(
            (planned for planned in tracker.plans if planned.start < at < planned.until), None
        )
        if across is not None:
            tracker.replan(across, across._replace(until=at), across._replace(start=at))
        return across is not None

    def store_metadata(self, text: str) -> bool:
        """Have a string go with the next new position, whoever commits it; False: the partition is
        not ours.
        """
        if self.live is not None:
            self.live.texts.store(text)
        elif self.is_ours:
            self.metadata.early = text
        return self.is_ours

    @property
    def user_metadata(self) -> Committed | None:
        """The group's position (-1: none) and the user's string beside it; None: not ours, or not
        known for sure.
        """
        return None if self.live is None else self.metadata.user


def lag_begins(tracker: OffsetTracker, committed: int | None, *, commits: bool) -> int:
    """The offset from which on records count as lag: the committed position, or where reading began
    without one.

    A channel that commits nothing never moves that: there it is the first record that is not
    settled.
    """
    if not commits:
        return tracker.safe
    return tracker.start if committed is None else committed


def is_done(one: Partition) -> bool:
    """Whether what is to be read of a partition has an end, has been read, and is settled."""
    return one.is_read_out and one.tracker is not None and one.tracker.safe >= one.tracker.position


def rests(one: Partition) -> bool:
    """Whether nothing of it can be due: all that has come is settled and stored, with what stands
    beside it.
    """
    tracker = one.live
    if (
        tracker is None
        or tracker.flags
        or tracker.position != tracker.uncommitted_from
        or one.unknown
    ):
        return False
    return not may_be_due(one.metadata, tracker)
