"""The rules of one client by themselves, requests as they are encoded, and the work of a group's
leader.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.growth.model import least_ms
from reactive_kafka import TopicPartition
from reactive_kafka.broker.aiokafka.offset_requests import commit_request
from reactive_kafka.broker.consumer.membership.classic_group.assignors.assignor import (
    MemberSubscription,
    Shares,
)
from reactive_kafka.broker.consumer.membership.classic_group.assignors.range_assignor import (
    RangeAssignor,
)
from reactive_kafka.broker.consumer.membership.classic_group.subscription_codec import (
    encode_assignment,
)
from reactive_kafka.broker.consumer.membership.group_parts import CommitIdentity
from reactive_kafka.commit.commit_engine import CommitEngine
from reactive_kafka.commit.strategy import ThrottledCommits
from reactive_kafka.partitions.table import PartitionTable
from reactive_kafka.records import Committed
from reactive_kafka.tracking.poison_watch import PoisonWatch
from reactive_kafka.tracking.tracker import OffsetTracker

GROUP = "orders-of-the-shop"
MEMBER = "orders-7c9e6679-7425-40de-944b-e07fc1f90ae7"
# Or the newest below it that the client speaks.
COMMIT_VERSION = 7


def _names(count: int) -> list[TopicPartition]:
    return [TopicPartition("orders-of-the-shop", number) for number in range(count)]


def _encoded(offsets: Mapping[TopicPartition, Committed]) -> bytes:
    """A commit of these as it is sent."""
    request = commit_request(GROUP, CommitIdentity(MEMBER, 7, None), offsets)
    return bytes(request.prepare({request.API_KEY: (0, COMMIT_VERSION)}).encode())


class _Assigned:
    """The rules of one client that reads so many partitions."""

    def __init__(self, count: int) -> None:
        table = PartitionTable()
        self.engine = CommitEngine(ThrottledCommits(1.0), table, lambda tracker: False)
        table.assign(1, _names(count))
        for one in list(table):
            table.move(one, "open")
            table.start(one, OffsetTracker(one.id, 0, committed=0))
            table.move(one, "read")
        self.trackers = list(table.trackers.values())

    def handle(self) -> None:
        """A record more is read and settled in each."""
        for tracker in self.trackers:
            position = tracker.position
            tracker.settle(tracker.deliver(range(position, position + 1), position + 1))

    def hold(self) -> None:
        """A record more is with a handler in each."""
        for tracker in self.trackers:
            position = tracker.position
            tracker.start_range(
                tracker.deliver(range(position, position + 1), position + 1), 1, 1.0
            )

    def tick(self) -> None:
        request = self.engine.plan(1.0)
        if request is not None:
            _encoded(request.offsets)
            self.engine.confirm(request, 1.0)


def tick_ms(partitions: int) -> float:
    """Plan a commit of all, encode the request, and take its answer."""
    assigned = _Assigned(partitions)
    return least_ms(assigned.tick, assigned.handle)


def idle_tick_ms(partitions: int) -> float:
    """Find that there is nothing to commit."""
    assigned = _Assigned(partitions)
    assigned.handle()
    assigned.tick()
    return least_ms(assigned.tick)


def poison_ms(partitions: int) -> float:
    """Look for what is overdue, with a handler in each partition."""
    assigned = _Assigned(partitions)
    watch = PoisonWatch(60.0)
    assigned.hold()

    def look() -> None:
        watch.look(assigned.trackers, 2.0)
        watch.next_look(assigned.trackers, 2.0)

    return least_ms(look)


def commit_kb(partitions: int, *, metadata: int = 0) -> float:
    """The request of a commit of all, each with a string of so many characters."""
    offsets = dict.fromkeys(_names(partitions), Committed(10**9, "m" * metadata))
    return len(_encoded(offsets)) / 1e3


def _dealt(members: int, partitions: int) -> tuple[float, float]:
    """What the leader of a group works on a rebalance, in ms, and how much it sends, in KB."""
    subscribed = MemberSubscription(frozenset({GROUP}))
    group = {f"{MEMBER}-{number}": subscribed for number in range(members)}
    assigned: Shares = {}

    def deal() -> None:
        assigned.update(RangeAssignor().assign(group, {GROUP: range(partitions)}, {}))

    ms = least_ms(deal)
    sizes = [len(name) + len(encode_assignment(share)) for name, share in assigned.items()]
    return ms, sum(sizes) / 1e3


def deal_ms(partitions: int) -> float:
    """Deal partitions to 100 members."""
    return _dealt(100, partitions)[0]


def deal_kb(members: int) -> float:
    """The answer of the leader, for 10,000 partitions."""
    return _dealt(members, 10_000)[1]
