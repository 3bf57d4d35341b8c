"""Where a channel keeps its positions: in its group, in a store, or in transactions.

Each kind makes the hook by which a session takes part in deliveries and acks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from reactive_kafka.channel.clients import ChannelClients
from reactive_kafka.channel.outbox_backlog import OutboxTotals
from reactive_kafka.channel.outbox_relay import OutboxRelay
from reactive_kafka.channel.run_services import RunServices
from reactive_kafka.checkpoint.channel_rows import CheckpointRows, StoreOutage
from reactive_kafka.checkpoint.hook import CheckpointHook
from reactive_kafka.checkpoint.outbox import OutboxStore
from reactive_kafka.checkpoint.state_codec import StateCodec
from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.outgoing.outgoing_channel import OutgoingChannel
from reactive_kafka.outgoing.transactions.exactly_once import ExactlyOnce
from reactive_kafka.outgoing.transactions.producers import TransactionalProducers
from reactive_kafka.tasks import Spawn
from reactive_kafka.verdicts.delivery_hook import DeliveryHook, NoHook, SharedHook


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAccess:
    """What a hook needs of the session that it is made for."""

    settings: IncomingSettings
    services: RunServices
    # The clients. There are none yet when the hook is made.
    clients: ChannelClients
    # Stops the channel, for the reason given.
    fail: Callable[[BaseException], object]
    spawn: Spawn
    # Counts records that were settled without their handler, because the store had them already.
    count_duplicates: Callable[[int], None]


class PositionKeeping(Protocol):
    """Where a channel keeps its positions."""

    def make_hook(self, session: SessionAccess) -> DeliveryHook:
        """Make the hook of one session."""

    @property
    def store(self) -> CheckpointStore | None:
        """The store that is closed when the channel ends for good. None: there is none."""


@dataclass(frozen=True, slots=True)
class PositionsInGroup:
    """The group's committed positions are all there is, or nothing is committed."""

    # Each record goes to several handlers, and is settled when all of them are done.
    is_broadcast: bool = False

    @property
    def store(self) -> None:
        return None

    def make_hook(self, session: SessionAccess) -> DeliveryHook:
        name = session.settings.name
        return SharedHook(name) if self.is_broadcast else NoHook(name)


@dataclass(frozen=True, slots=True)
class PositionsInStore:
    """``commit_strategy = "checkpoint"``: a store of the user has positions and states."""

    store: CheckpointStore
    codec: StateCodec
    # The outgoing channels whose events are rows of the store. Empty: it has no outbox.
    outboxes: Sequence[OutgoingChannel] = ()
    outbox_totals: OutboxTotals = field(default_factory=OutboxTotals)
    outage: StoreOutage = field(default_factory=StoreOutage)

    def make_hook(self, session: SessionAccess) -> DeliveryHook:
        services = session.services
        rows = CheckpointRows(
            session.settings,
            self.store,
            lambda: session.clients,
            services.clock,
            services.observer,
            self.outage,
        )
        relay = None
        if self.outboxes and isinstance(self.store, OutboxStore):
            relay = OutboxRelay(rows, self.store, self.outboxes, session.spawn, self.outbox_totals)
        return CheckpointHook(
            session.settings, rows, self.codec, session.fail, session.count_duplicates, relay
        )


@dataclass(frozen=True, slots=True)
class PositionsInTransactions:
    """Exactly once: a record's position is committed in one transaction with its outputs."""

    producers: TransactionalProducers

    @property
    def store(self) -> None:
        return None

    def make_hook(self, session: SessionAccess) -> DeliveryHook:
        return ExactlyOnce(
            session.settings.name,
            self.producers,
            session.services.observer,
            lambda: session.clients,
            session.spawn,
        )
