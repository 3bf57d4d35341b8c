"""What an incoming channel is built from; each of its sessions is built from the same. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.assignment.rebalance_hooks import RebalanceHooks
from reactive_kafka.broker.client import Connector
from reactive_kafka.channel.position_keeping import PositionKeeping, PositionsInGroup
from reactive_kafka.channel.run_services import RunServices
from reactive_kafka.commit.strategy import CommitStrategy
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.delivery.lanes.lane import KeyOf
from reactive_kafka.delivery.skipping import Skipping
from reactive_kafka.delivery.workers.interface import ChannelWorkers, WorkerSetup
from reactive_kafka.delivery.workers.shared_limit import SharedLimit
from reactive_kafka.errors import DecodeError
from reactive_kafka.formats import ChannelSchemas
from reactive_kafka.observe.facts import DurationHistogram
from reactive_kafka.records import RawRecord
from reactive_kafka.verdicts.message_watch import ReceiveWatch, VerdictWatch

Decode = Callable[[bytes | None], Any]
DecodeRecord = Callable[[RawRecord], Any]
MakeWorkers = Callable[[WorkerSetup], ChannelWorkers]


@dataclass(frozen=True, slots=True)
class RecordReading:
    """How the values and the keys of a channel's records are read."""

    # Reads the value. None: it is handed over as it is.
    decode: Decode | None = None
    # Reads a record with headers, which may be a CloudEvent, or name a schema. None: headers say
    # nothing about the value.
    decode_record: DecodeRecord | None = None
    # Reads the key. None: keys are bytes.
    decode_key: DecodeRecord | None = None
    # Why a record without a value is refused. None: it is not, or *decode* refuses it.
    refusal: str | None = None
    # The registered schemas of its values and keys. None: its formats have none.
    schemas: ChannelSchemas | None = None
    # The type that values are read into.
    payload_type: Any = Any

    def read(self, record: RawRecord) -> Any:
        """Return the payload of a record.

        Raises:
            DecodeError: It cannot be read.
            SchemaMissing: Its schema has to be asked for first.
        """
        if self.decode_record is not None and record.headers:
            payload = self.decode_record(record)
        else:
            payload = record.value if self.decode is None else self.decode(record.value)
        if payload is None and self.refusal is not None:
            raise DecodeError(self.refusal)
        return payload


@dataclass(frozen=True, slots=True)
class ByWorkers:
    """The workers of a channel take its records: they call handlers, or run batches on Spark."""

    # Makes the workers of each session.
    make: MakeWorkers
    # The key that records are ordered by, with ``ordering = "key"``.
    key_of: KeyOf | None = None
    # Ranges that an earlier owner has planned are handled as it planned them.
    keeps_plans: bool = False


@dataclass(frozen=True, slots=True)
class ByIteration:
    """The application iterates over a channel."""

    # Which records it does not get. None: it gets all of them. Handlers have this in their workers.
    skipping: Skipping | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelBlueprint:
    """What one incoming channel is built from."""

    settings: IncomingSettings
    services: RunServices
    strategy: CommitStrategy
    consumption: ByWorkers | ByIteration = ByIteration()
    reading: RecordReading = RecordReading()
    hooks: RebalanceHooks = field(default_factory=RebalanceHooks)
    # Where its positions are kept, besides what the group commits.
    positions: PositionKeeping = field(default_factory=PositionsInGroup)
    # Makes the clients that read the channel's own topics. None: the connector of the run does.
    connector: Connector | None = None
    # Channel that comes before this one -> whether it has records waiting.
    after: Mapping[str, Callable[[], bool]] = field(default_factory=dict)
    # The limit that its handlers share with those of other channels.
    limit: SharedLimit | None = None
    # The names of the functions that take its records.
    handlers: tuple[str, ...] = ()
    # Counts its commits, through all of its sessions.
    commit_durations: DurationHistogram = field(default_factory=DurationHistogram)
    # Sees the verdicts of its messages. None: nothing does.
    watch: VerdictWatch | None = None
    # Sees the messages that the application takes by iteration. None: nothing does.
    receives: ReceiveWatch | None = None
