"""The Kafka clients that a channel needs, and what each of them reads. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reactive_kafka.commit.strategy import CommitStrategy, Throttled
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.config.tables import DelayedRetrySettings
from reactive_kafka.failure.headers import delay_of
from reactive_kafka.partitions.hooks import Hooks


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What one client of a channel is for.

    Attributes:
        name: The client's name.
        settings: The channel's, as this client has them.
        hooks: Of the application.
        delays: topic -> how long after its timestamp a record is due, in milliseconds; those of delayed retries.
    """

    name: str
    settings: IncomingSettings
    strategy: CommitStrategy
    hooks: Hooks = Hooks()  # noqa: RUF009  # frozen
    delays: Mapping[str, int] | None = None

    @property
    def is_for_retries(self) -> bool:
        """Whether it reads the channel's retry topics."""
        return self.delays is not None


def roles(settings: IncomingSettings, strategy: CommitStrategy, hooks: Hooks) -> list[Role]:
    """The clients that a channel needs: its consumers, and one more where records are retried with a delay."""
    share = max(1, settings.max_in_flight // settings.consumers)
    found = [
        Role(
            name=settings.name if number == 1 else f"{settings.name}-{number}",
            settings=replace(settings, max_in_flight=share, client=_own_instance(settings.client, number)),
            strategy=strategy,
            hooks=hooks,
        )
        for number in range(1, settings.consumers + 1)
    ]
    if settings.delayed_retry is not None:
        found.append(_for_retries(replace(settings, max_in_flight=share), settings.delayed_retry))
    return found


def _own_instance(client: Mapping[str, object], number: int) -> Mapping[str, object]:
    instance = client.get("group_instance_id")
    return client if instance is None or number == 1 else {**client, "group_instance_id": f"{instance}-{number}"}


def _for_retries(settings: IncomingSettings, delayed: DelayedRetrySettings) -> Role:
    return Role(
        name=f"{settings.name}-delayed-retry",
        settings=replace(
            settings,
            topics=delayed.topics,
            pattern=None,
            assign=(),
            group_id=f"kafka-delayed-retry-topic-{settings.group_id or settings.name}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            client=delayed.client,
        ),
        strategy=Throttled(settings.commit_interval_s),
        delays={topic: delay_of(topic) or 0 for topic in delayed.topics},
    )
