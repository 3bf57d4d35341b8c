"""The Kafka clients that a channel needs, and what each of them is for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reactive_kafka.assignment.rebalance_hooks import RebalanceHooks
from reactive_kafka.commit.strategy import CommitStrategy, ThrottledCommits
from reactive_kafka.config.incoming_kinds import AssignedPartition
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.config.tables import DelayedRetrySettings
from reactive_kafka.failure.headers import delay_of
from reactive_kafka.partitions.start_choice import StartChoice
from reactive_kafka.records import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRole:
    """What one client of a channel is for."""

    # Each client of a channel has a name of its own.
    name: str
    # The channel's settings, with the client's share of what the clients share.
    settings: IncomingSettings
    # Its share of max_uncommitted.
    most_uncommitted: int
    strategy: CommitStrategy
    hooks: RebalanceHooks = RebalanceHooks()  # noqa: RUF009 (it is frozen)
    # Retry topic -> how long after its timestamp a record is due, in ms. None: it reads no retry
    # topics.
    delays: Mapping[str, int] | None = None

    @property
    def is_for_retries(self) -> bool:
        """Whether it reads the channel's retry topics."""
        return self.delays is not None


def client_roles(
    settings: IncomingSettings, strategy: CommitStrategy, hooks: RebalanceHooks
) -> list[ClientRole]:
    """Return the clients that a channel needs.

    These are its consumers, and one more if failed records are retried with a delay.
    """
    share = settings if settings.consumers == 1 else _share_of(settings)
    most = max(1, settings.most_uncommitted // settings.consumers)
    found = [
        ClientRole(
            name=settings.name if number == 1 else f"{settings.name}-{number}",
            settings=_own_instance(share, number),
            most_uncommitted=most,
            strategy=strategy,
            hooks=hooks,
        )
        for number in range(1, settings.consumers + 1)
    ]
    if settings.delayed_retry is not None:
        found.append(_for_retries(share, most, settings.delayed_retry))
    return found


def _share_of(settings: IncomingSettings) -> IncomingSettings:
    """Return settings in which one of several consumers has its share of the channel's limits."""
    share = replace(settings, max_in_flight=max(1, settings.max_in_flight // settings.consumers))
    if settings.max_in_flight_bytes is None:
        return share
    most_bytes = max(1, settings.max_in_flight_bytes // settings.consumers)
    return replace(share, max_in_flight_bytes=most_bytes)


def _own_instance(settings: IncomingSettings, number: int) -> IncomingSettings:
    """Return settings in which each consumer has another ``group_instance_id``."""
    instance = settings.client.get("group_instance_id")
    if instance is None or number == 1:
        return settings
    return replace(
        settings, client={**settings.client, "group_instance_id": f"{instance}-{number}"}
    )


def group_of_retries(settings: IncomingSettings) -> str:
    """Return the group that reads a channel's retry topics. Source: SmallRye's name for it."""
    return f"kafka-delayed-retry-topic-{settings.group_id or settings.name}"


def _for_retries(
    settings: IncomingSettings, most: int, delayed: DelayedRetrySettings
) -> ClientRole:
    return ClientRole(
        name=f"{settings.name}-delayed-retry",
        settings=replace(
            settings,
            topics=delayed.topics,
            pattern=None,
            assign=(),
            group_id=group_of_retries(settings),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            client=delayed.client,
        ),
        most_uncommitted=most,
        strategy=ThrottledCommits(settings.commit_interval_s),
        delays={topic: delay_of(topic) or 0 for topic in delayed.topics},
    )


def is_exact(settings: IncomingSettings) -> bool:
    """Return whether each record keeps its own metadata string until it is committed.

    Where records are settled in order, the newest string always belongs to the last record.
    """
    is_ordered = settings.ordering == "partition" or settings.commit_strategy == "ignore"
    return settings.offset_metadata_strategy == "exact" and not is_ordered


def starts_of(
    settings: IncomingSettings, resume: Mapping[TopicPartition, int]
) -> dict[TopicPartition, StartChoice]:
    """Return where reading starts in partitions for which that is decided already.

    Those of whole topics with a range of times are not among them: they are not known yet.

    Args:
        resume: Partition -> position at which the session before this one has ended. It wins over
            the start that ``assign`` names.
    """
    chosen: dict[TopicPartition, StartChoice] = {}
    for assigned in settings.assign:
        if isinstance(assigned, AssignedPartition) and assigned.start is not None:
            # A partition may have several ranges. They are read in order, so the first one counts.
            chosen.setdefault(assigned.partition, StartChoice(assigned.start))
    for partition, position in resume.items():
        chosen[partition] = StartChoice(position, is_resumed=True)
    return chosen
