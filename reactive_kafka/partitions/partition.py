"""One partition of one client: its states as a table, and what is known of it. No I/O, no clock."""

from __future__ import annotations

from enum import Enum

from reactive_kafka.delivery.lanes.lane import Lane
from reactive_kafka.partitions.commit_state import CommitState
from reactive_kafka.partitions.fetch_state import FetchState
from reactive_kafka.partitions.log_state import LogState
from reactive_kafka.partitions.start_choice import StartChoice
from reactive_kafka.partitions.start_state import StartState
from reactive_kafka.records import Committed, TopicPartition
from reactive_kafka.subscription import Ranges
from reactive_kafka.tracking.metadata.pending import MetadataPolicy
from reactive_kafka.tracking.tracker import OffsetTracker
from reactive_kafka.tracking.unknown_commits import UnknownCommits


class PartitionState(Enum):
    """Whether a partition is ours, and how far its start or its end has come.

    Its tracker takes verdicts in every state but GONE; positions are committed in four.
    """

    # Members are looked up in sets for every partition, also in each poll; Enum's own hash is a
    # function in Python.
    __hash__ = object.__hash__

    ASSIGNED = "ours; the hooks of the assignment have not run"
    LOCATING = "ours; the position to read from is being found"
    RETAINED = "ours again as we left it; commits continue, reading waits for the hooks"
    STARTING = "ours; the position is known, and is committed first where only we know it"
    READING = "ours; records come in and are handled"
    DRAINING = "about to go; no record is taken any more, what is settled is still committed"
    SUSPENDED = "revoked; its records wait to hear whether it is retained, and nothing is committed"
    GONE = "not ours any more; verdicts are refused"


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
seek (reading continues until then); ``read``: that position is committed where it has to be, and
records may come; ``relocate``: the position that was known does not apply any more, after a seek
before reading has started, or because another owner has taken over the row in the checkpoint store;
``drain``: a revocation or a stop has begun, and handlers that run may finish; ``revoke``: the last
commit is over; ``assign``: the next assignment brings it again; ``lose``: the next assignment does
not bring it, or there will be none."""

COMMITTING = frozenset({S.RETAINED, S.STARTING, S.READING, S.DRAINING})
OURS = frozenset({S.ASSIGNED, S.LOCATING, S.RETAINED, S.STARTING, S.READING, S.DRAINING})
PENDING = frozenset({S.ASSIGNED, S.LOCATING, S.RETAINED, S.STARTING})


class IllegalStateError(Exception):
    """An event that the state does not allow: a bug of ours. Nothing was changed."""

    def __init__(self, partition: TopicPartition, state: PartitionState, event: str) -> None:
        super().__init__(f"{partition} is {state.name}: {event!r} cannot come now")


class Partition:
    """What one client knows of one of its partitions.

    The table alone moves it and gives it trackers. What else is known is in four values, each
    written by its own methods only.
    """

    __slots__ = (
        "assignment",
        "commits",
        "fetch",
        "generation",
        "id",
        "lane",
        "log",
        "ranges",
        "start",
        "state",
        "tracker",
    )

    def __init__(
        self,
        id: TopicPartition,
        policy: MetadataPolicy,
        configured: StartChoice | None = None,
        ranges: Ranges | None = None,
        unknown: UnknownCommits | None = None,
    ) -> None:
        self.id = id
        # What is read of it; None: all, without an end.
        self.ranges = ranges
        # Changed by go() only.
        self.state = S.ASSIGNED
        # The number of its assignment to this client: answers to what was asked during an earlier
        # one do not apply. -1: it is about to go.
        self.assignment = 0
        # The last generation of the group in which it was ours.
        self.generation = -1
        # None before reading has started.
        self.tracker: OffsetTracker | None = None
        # There is one as long as there is a tracker.
        self.lane: Lane | None = None
        self.commits = CommitState(policy, unknown)
        self.start = StartState(configured)
        self.fetch = FetchState()
        self.log = LogState()

    def __repr__(self) -> str:
        return f"<Partition {self.id} {self.state.name}>"

    def go(self, event: str) -> None:
        """Move to the state that *event* leads to.

        Raises:
            IllegalStateError: The state does not allow the event.
        """
        to = TRANSITIONS[self.state].get(event)
        if to is None:
            raise IllegalStateError(self.id, self.state, event)
        self.state = to

    @property
    def live(self) -> OffsetTracker | None:
        """The tracker whose positions are committed; None: there is none."""
        return self.tracker if self.state in COMMITTING else None

    @property
    def left(self) -> OffsetTracker | None:
        """The tracker that waits to hear whether the partition is retained."""
        return None if self.state in COMMITTING else self.tracker

    @property
    def is_ours(self) -> bool:
        """Whether it is in our assignment, also while it is about to go."""
        return self.state in OURS

    @property
    def is_read(self) -> bool:
        """Whether polls ask for its records."""
        return self.state is S.READING

    @property
    def is_read_out(self) -> bool:
        """Whether it is read up to an end, and has been."""
        return (
            self.ranges is not None
            and self.tracker is not None
            and self.tracker.position >= self.ranges.end
        )

    @property
    def is_pending(self) -> bool:
        """Whether it is ours, and reading has not started."""
        return self.state in PENDING

    def awaits_start(self, assignment: int) -> bool:
        """Whether it still needs the start that was looked up during this assignment."""
        return self.assignment == assignment and self.is_pending

    @property
    def in_flight(self) -> int:
        """Records with a handler, or with the application, and without a verdict."""
        return 0 if self.tracker is None else self.tracker.open - self.queued

    @property
    def queued(self) -> int:
        """Records that no worker has taken; those that are not due yet are counted too."""
        return 0 if self.lane is None else self.lane.waiting + len(self.lane.delayed)

    @property
    def running(self) -> int:
        """Workers that run records of it."""
        return 0 if self.lane is None else self.lane.workers

    def store_metadata(self, text: str) -> bool:
        """Store a string with the next new position; False if the partition is not ours."""
        if self.live is not None:
            self.live.texts.store(text)
        elif self.is_ours:
            self.commits.metadata.store_early(text)
        return self.is_ours

    @property
    def user_metadata(self) -> Committed | None:
        """The group's position (-1: none) and the user's string stored with it.

        None if the partition is not ours, or it is not known for sure.
        """
        return None if self.live is None else self.commits.metadata.user


def lag_begins(tracker: OffsetTracker, committed: int | None, *, commits: bool) -> int:
    """The first offset that counts as lag: the committed position, or where reading began.

    Args:
        commits: False for a channel that commits nothing: there it is the first record that is not
            settled.
    """
    if not commits:
        return tracker.safe
    return tracker.start if committed is None else committed


def is_done(partition: Partition) -> bool:
    """Whether a partition is read up to an end, has been, and all records are settled."""
    tracker = partition.tracker
    if tracker is None or not partition.is_read_out:
        return False
    return tracker.safe >= tracker.position
