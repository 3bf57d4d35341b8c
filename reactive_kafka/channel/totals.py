"""What a channel counts, and what it keeps through its restarts. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from reactive_kafka.assignment.history import AssignmentHistory
from reactive_kafka.commit.outcomes import CommitOutcomes
from reactive_kafka.delivery.ages import RecordTimes
from reactive_kafka.delivery.lanes.limits import TokenBucket
from reactive_kafka.delivery.lanes.pauses import Pauses
from reactive_kafka.delivery.lanes.rates_by_value import BucketsByValue
from reactive_kafka.delivery.workers.interface import HandlerTotals
from reactive_kafka.fetching.record_skips import RecordSkips
from reactive_kafka.observe.facts import PartitionTotals
from reactive_kafka.observe.open_problems import OpenProblems
from reactive_kafka.records import TopicPartition
from reactive_kafka.subscription import Ranges
from reactive_kafka.tracking.unknown_commits import UnknownCommits

MOST_LEFT = 10_000
"""How many partitions are counted one by one after they were taken from us. A pattern's topics may
come and go for ever, so there is a bound.
"""
OTHERS = TopicPartition("(others)", -1)
"""All partitions beyond that number, counted as one. No topic can have this name."""


@dataclass(slots=True)
class ChannelTotals:
    """What a channel counts, and what it keeps, through all of its sessions."""

    totals: defaultdict[TopicPartition, PartitionTotals] = field(
        default_factory=lambda: defaultdict(PartitionTotals)
    )
    commits: CommitOutcomes = field(default_factory=CommitOutcomes)
    history: AssignmentHistory = field(default_factory=AssignmentHistory)
    # Where the last session ended, in partitions that no group assigns. The next session continues
    # there. At the start that the settings choose it would skip records that were not settled.
    resume: dict[TopicPartition, int] = field(default_factory=dict)
    # Commits of the sessions before whose answer is missing, in partitions that no group assigns:
    # one of them may still be stored, over a newer one.
    unanswered: dict[TopicPartition, UnknownCommits] = field(default_factory=dict)
    # Partition -> what is read of it, where reading ends. Ranges of times are added when a broker
    # has said which offsets they have; a restart of the channel reads the same offsets again.
    ranges: dict[TopicPartition, Ranges] = field(default_factory=dict)
    # By the client's name.
    problems: defaultdict[str, OpenProblems] = field(
        default_factory=lambda: defaultdict(OpenProblems)
    )
    pauses: Pauses = field(default_factory=Pauses)
    skips: RecordSkips = field(default_factory=RecordSkips)
    handlers: HandlerTotals = field(default_factory=HandlerTotals)
    # None: the channel has no rate_limit, or one for each value.
    limit: TokenBucket | None = None
    # None: the channel has no rate_limit for each value.
    value_limit: BucketsByValue | None = None
    times: RecordTimes = field(default_factory=RecordTimes)

    def totals_of(self, partition: TopicPartition) -> PartitionTotals:
        return self.totals[partition]

    def received(self, partition: TopicPartition, records: int) -> None:
        self.totals_of(partition).received += records

    def bounded(
        self, assigned: Iterable[TopicPartition], most_left: int = MOST_LEFT
    ) -> dict[TopicPartition, PartitionTotals]:
        """Return the totals by partition.

        Of the partitions that are not assigned, the oldest are counted together if there are more
        than *most_left*.
        """
        if len(self.totals) > most_left:
            kept = {*assigned, OTHERS}
            unassigned = [partition for partition in self.totals if partition not in kept]
            for partition in unassigned[: max(0, len(unassigned) - most_left)]:
                self.totals[OTHERS].add(self.totals.pop(partition))
        return dict(self.totals)
