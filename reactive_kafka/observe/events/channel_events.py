"""Events about a channel: its state, its broker, its group."""

from __future__ import annotations

from typing import Literal

from reactive_kafka.observe.events.base import (
    ChannelEvent,
    Event,
    Level,
    Problem,
    TracedProblem,
    event,
)
from reactive_kafka.observe.wording import count_of, ranges_text
from reactive_kafka.records import TopicPartition


@event("{new}, was {old}", identity=("new",))
class ChannelStateChanged(ChannelEvent):
    """The channel changed its state. ``ChannelFailed`` says why it failed."""

    old: str
    new: str


@event(identity=("reasons", "partitions"))
class ChannelPaused(ChannelEvent):
    """The application paused or resumed the channel or partitions of it, or gave other reasons."""

    # Why the whole channel is paused. Empty: it is not.
    reasons: tuple[str, ...]
    # The partitions that are paused one by one.
    partitions: frozenset[TopicPartition] = frozenset()

    def text(self) -> str:
        paused = []
        if self.reasons:
            paused.append(f"paused: {'; '.join(self.reasons)}")
        if self.partitions:
            paused.append(f"{', '.join(map(str, sorted(self.partitions)))} paused")
        return "; ".join(paused) or "resumed"


@event("{remote} asked for {action} {arguments}: {status}, {result}", identity=("number",))
class ActionTaken(ChannelEvent):
    """An operator asked for an action over HTTP, with the token. Each has a line of its own.

    *channel* is ``*`` if the action is for none. *outcome* is ``ok`` if it was carried out,
    ``refused`` with a 4xx status, else ``failed``.
    """

    # Counts the actions of the process from 1.
    number: int
    action: str
    # A JSON object.
    arguments: str
    # The address of the client.
    remote: str
    # The HTTP status of the answer.
    status: int
    outcome: Literal["ok", "refused", "failed"]
    result: str
    # False: everything was as asked for before, as a record to skip that was settled.
    has_changed: bool = True

    def loudness(self) -> Level:
        return "info" if self.outcome == "ok" else "warning"


@event("failed: {reason}")
class ChannelFailed(TracedProblem):
    """The channel has stopped. *reason* also says whether and when it restarts by itself."""


@event("{doing} failed: {reason}", identity=("doing",))
class EndFailed(TracedProblem):
    """A step of stopping a channel (``*``: the application) failed. The other steps are taken."""

    doing: str


@event("the hook {hook} raised: {reason}", identity=("hook",))
class HookFailed(TracedProblem):
    """A hook of the application raised. The start, stop or rebalance around it continues."""

    hook: str


@event("the broker is away: {reason}")
class BrokerUnavailable(Problem):
    """The broker cannot be reached, and the channel keeps trying.

    Reported once for each reason of an outage.
    """


@event("the broker is back after {away_s:.1f} s")
class BrokerAvailable(ChannelEvent):
    """The end of :class:`BrokerUnavailable`: all clients of the channel work again."""

    # Since the first failure.
    away_s: float


@event("schema registry {url}: {asked}: {reason}; it is asked again", identity=("asked",))
class SchemaUnavailable(Problem):
    """Records that are read or sent wait for the schema registry. It is asked until it answers."""

    url: str
    asked: str


@event("schema registry {url}: {asked}: it has answered after {away_s:.1f} s", identity=("asked",))
class SchemaAvailable(ChannelEvent):
    """The end of :class:`SchemaUnavailable`."""

    url: str
    asked: str
    # Since the first request.
    away_s: float


@event("{reason}", identity=("reason",))
class SchemaNotChecked(Problem):
    """A pattern in a JSON Schema cannot be checked, so it accepts every value.

    It is no pattern of ECMA-262, or Python cannot express it. Reported once for each schema.
    """


@event(identity=("kind", "generation"))
class Rebalanced(ChannelEvent):
    """*partitions* were assigned, revoked or lost; there may be none."""

    kind: Literal["assigned", "revoked", "lost"]
    partitions: frozenset[TopicPartition]
    generation: int | None = None

    def text(self) -> str:
        named = ranges_text(sorted(self.partitions), most=5)
        text = f"{count_of(len(self.partitions), 'partition')} {self.kind}"
        return f"{text}: {named}" if named else text


@event(level="warning")
class ConsumersIdle(ChannelEvent):
    """Some of the channel's ``consumers`` have no partition, because the group has more members."""

    idle: int
    consumers: int

    def text(self) -> str:
        have = f"{self.idle} of {self.consumers} consumers {'has' if self.idle == 1 else 'have'}"
        return f"{have} no partition: the group has more members than there are partitions"


@event("{reason}; what is sent to the topic {topic!r} waits for that", identity=("topic",))
class NotWritable(Problem):
    """An outgoing channel has not reached the broker or its topic since it started.

    Reported once for each kind of error.
    """

    topic: str


@event(
    "the group has not answered for a whole session timeout: no record is started until it does",
    level="warning",
)
class SessionOver(ChannelEvent):
    """The group has not answered for a whole session timeout: no record is started until it does.

    Other members may have the partitions by now. The channel knows which ones it still has when
    the group answers again.
    """


@event("the group answers again: records are started")
class SessionUp(ChannelEvent):
    """The end of :class:`SessionOver`."""


@event("the embedded broker listens on {address}")
class EmbeddedBrokerStarted(Event):
    """The embedded broker listens. Kafka clients on this machine can use it while we run."""

    address: str


@event(level="warning")
class LoopBlocked(Event):
    """The event loop was blocked.

    ``where`` names the calls that it was in, those of the application first. It is empty if nothing
    could look.
    """

    lag_s: float
    where: str = ""

    def text(self) -> str:
        text = f"the event loop was blocked for {self.lag_s:.2f} s"
        return f"{text}, in {self.where}" if self.where else text
