"""Events about a channel: its state, its broker, its group."""

from __future__ import annotations

from typing import Literal

from reactive_kafka.observe.batches import count_of, ranges_text
from reactive_kafka.observe.events.base import (
    ChannelEvent,
    Event,
    Problem,
    TracedProblem,
    event,
)
from reactive_kafka.records import TopicPartition


@event("{new}, was {old}", apart=("new",))
class ChannelStateChanged(ChannelEvent):
    """The channel changed its state; ``ChannelFailed`` says why it failed."""

    old: str
    new: str


@event(apart=("reasons", "partitions"))
class ChannelPaused(ChannelEvent):
    """The application paused or resumed the channel or some of its partitions, or changed the
    reasons.
    """

    # Why the whole channel is paused now; empty: it is not.
    reasons: tuple[str, ...]
    # Those that are paused by themselves.
    partitions: frozenset[TopicPartition] = frozenset()

    def text(self) -> str:
        some = f"{', '.join(map(str, sorted(self.partitions)))} paused" if self.partitions else ""
        whole = f"paused: {'; '.join(self.reasons)}" if self.reasons else ""
        return "; ".join(filter(None, (whole, some))) or "resumed"


@event("failed: {reason}")
class ChannelFailed(TracedProblem):
    """The channel has stopped; *reason* also says whether and when it restarts by itself."""


@event("{doing} failed: {reason}")
class EndFailed(TracedProblem):
    """A step in the end of a channel (``*``: of the application) failed; the other steps are
    taken.
    """

    doing: str


@event("the hook {hook} raised: {reason}")
class HookFailed(TracedProblem):
    """A hook of the user's raised; what it was called for goes on."""

    hook: str


@event("the broker is away: {reason}")
class BrokerUnavailable(Problem):
    """The broker cannot be reached; the channel keeps trying. Reported once for each outage, and
    each new reason.
    """


@event("the broker is back after {away_s:.1f} s")
class BrokerAvailable(ChannelEvent):
    """The end of :class:`BrokerUnavailable`: all clients of the channel work again."""

    # Since the first failure.
    away_s: float


@event("schema registry {url}: {asked}: {reason}; it is asked again", apart=("asked",))
class SchemaUnavailable(Problem):
    """Records, or what is sent, wait for an answer of the schema registry; it is asked until there
    is one.
    """

    url: str
    asked: str


@event("schema registry {url}: {asked}: it has answered after {away_s:.1f} s", apart=("asked",))
class SchemaAvailable(ChannelEvent):
    """The end of :class:`SchemaUnavailable`."""

    url: str
    asked: str
    # Since it was asked first.
    away_s: float


@event("{reason}")
class SchemaNotChecked(Problem):
    """A pattern in a JSON Schema cannot be checked, and refuses nothing: it is none of ECMA-262, or
    Python cannot express it. Reported once for each schema."""


@event(apart=("kind", "generation"))
class Rebalanced(ChannelEvent):
    """*partitions* were assigned, revoked or lost; there may be none."""

    kind: Literal["assigned", "revoked", "lost"]
    partitions: frozenset[TopicPartition]
    generation: int | None = None

    def text(self) -> str:
        named = ranges_text(sorted(self.partitions), most=5)
        return f"{count_of(len(self.partitions), 'partition')} {self.kind}{f': {named}' if named else ''}"


@event(level="warning")
class ConsumersIdle(ChannelEvent):
    """Some of the channel's ``consumers`` have no partition: the group has more members than there
    are partitions.
    """

    idle: int
    consumers: int

    def text(self) -> str:
        have = f"{self.idle} of {self.consumers} consumers {'has' if self.idle == 1 else 'have'}"
        return f"{have} no partition: the group has more members than there are partitions"


@event("{reason}; what is sent to the topic {topic!r} waits for that", apart=("topic",))
class NotWritable(Problem):
    """An outgoing channel cannot reach the broker or its topic since its start; reported once."""

    topic: str


@event(
    "the group has not answered for as long as its session: no record is started until it does",
    level="warning",
)
class SessionOver(ChannelEvent):
    """The session has passed without an answer of the group: no record is started until there is
    one.

    Other members may have the partitions by now. Which ones go on is known when the group answers
    again.
    """


@event("the group answers again: records are started")
class SessionUp(ChannelEvent):
    """The end of :class:`SessionOver`."""


@event("the embedded broker listens on {address}")
class EmbeddedBrokerStarted(Event):
    """The embedded broker listens; any Kafka client of this machine can use it, for as long as the
    application runs.
    """

    address: str


@event(level="warning")
class LoopBlocked(Event):
    """The event loop was blocked.

    ``where`` are the calls that it stood in, the user's first; empty where nobody could look.
    """

    lag_s: float
    where: str = ""

    def text(self) -> str:
        return f"the event loop was blocked for {self.lag_s:.2f} s" + (
            f", in {self.where}" if self.where else ""
        )
