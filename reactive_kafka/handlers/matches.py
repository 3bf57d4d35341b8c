"""The functions of one channel: how each is decorated, and which records are whose where there are
several. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any

from reactive_kafka.config.keys import INCOMING
from reactive_kafka.config.settings import AckMode, IncomingSettings
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.formats.discriminated_unions import classes_of_annotation, discriminated_union
from reactive_kafka.formats.payload_type import name_of, payload_type_of
from reactive_kafka.handlers.middleware import Layers
from reactive_kafka.handlers.signature import HandlerSpec, Shape
from reactive_kafka.records import RawRecord
from reactive_kafka.verdicts.message import Message

if TYPE_CHECKING:
    from reactive_kafka.spark.batches.spark_function import SparkDecoration

When = Callable[[Message[Any]], object]
Kinds = tuple[type, ...]


@dataclass(frozen=True, slots=True)
class Incoming:
    """One ``@app.incoming`` of a function."""

    channel: str
    ack: AckMode | None = None
    # Calls in all; or everything.
    retry: int | RetrySettings | None = None
    when: When | None = None
    # Of the application or router that it was declared on.
    layers: Layers = field(default_factory=Layers)

    def retries(self, configured: RetrySettings) -> RetrySettings:
        """The retries of the function: those of its channel, but for what it says itself."""
        if isinstance(self.retry, int):
            return replace(configured, max_attempts=self.retry)
        return self.retry or configured

    def layered(self, handler: HandlerSpec) -> HandlerSpec:
        """The handler with the middleware that is around its calls and its sends, as of now."""
        return replace(
            handler,
            middleware=self.layers.around_calls(),
            send_middleware=self.layers.around_sends(),
        )


@dataclass(frozen=True, slots=True)
class Match:
    """One function of a channel: a handler with its decorator, or a Spark function; or neither."""

    who: str
    decorated: Incoming
    handler: HandlerSpec | None = None
    outgoing: tuple[str, ...] = ()
    spark: SparkDecoration | None = None

    @property
    def payload_type(self) -> Any:
        """What it asks for."""
        return Any if self.handler is None else self.handler.payload_type


@dataclass(frozen=True, slots=True)
class BranchSpec:
    """One handler of a channel whose handlers are chosen for each record."""

    handler: HandlerSpec
    outgoing: tuple[str, ...]
    retry: RetrySettings
    when: When | None = None
    # Those of its payloads, where the channel reads several; (): they do not say whose a record is.
    kinds: Kinds = ()
    # Reads its own payload; None: it takes the channel's.
    read: Callable[[RawRecord], Any] | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What the values of a channel are read into for all of its handlers.

    Attributes:
        kinds: The classes that each handler takes; ``()`` for all where these do not tell records
            apart.
        is_plain: The types have nothing in common, and each handler reads its own: *asked* is for
            ``when``.
    """

    asked: Any
    kinds: Sequence[Kinds]
    is_plain: bool = False


def reading_of(
    matches: Sequence[Match], deserializer: str | None, *, are_objects: bool = False
) -> Reading:
    """How the values of a channel are read; *are_objects*: those of a memory channel, which are
    not.
    """
    asked = [match.payload_type for match in matches]
    nothing: Sequence[Kinds] = [()] * len(asked)
    if all(one == asked[0] for one in asked):
        return Reading(asked[0], nothing)
    together = discriminated_union(asked, are_objects=are_objects)
    if together is not None:
        return Reading(together, [classes_of_annotation(one) or () for one in asked])
    is_raw = deserializer is None and any(
        payload_type_of(one).base in (bytes, str) for one in asked
    )
    return Reading(bytes | None if is_raw else Any, nothing, is_plain=True)


def in_order(matches: Sequence[Match], settings: IncomingSettings) -> list[Match]:
    """The functions of a channel as their records are offered to them: those without ``when``
    last.
    """
    return (
        list(matches)
        if settings.broadcast
        else sorted(matches, key=lambda match: match.decorated.when is None)
    )


def is_chosen(matches: Sequence[Match]) -> bool:
    """Whether a handler of the channel does not take every record."""
    return len(matches) > 1 or any(match.decorated.when is not None for match in matches)


def misfits(
    matches: Sequence[Match], settings: IncomingSettings, *, are_objects: bool
) -> Iterator[str]:
    """What keeps several handlers from sharing a channel."""
    if not is_chosen(matches):
        return
    for match in matches:
        if match.handler is not None and match.handler.shape is Shape.BATCH:
            why = "takes batches, and is the only handler of its channel, without when=: divide the batch in it"
            yield f"{match.who}: {why}"
    acks = {match.decorated.ack or settings.ack: match.who for match in matches}
    if len(acks) > 1:
        said = ", ".join(f"{who} has {ack!r}" for ack, who in acks.items())
        yield f"channel {settings.name!r}: its handlers have one ack mode, and {said}"
    if settings.broadcast:
        yield from _of_broadcast(matches, settings)
    else:
        yield from _not_told_apart(matches, settings, are_objects=are_objects)


def _of_broadcast(matches: Sequence[Match], settings: IncomingSettings) -> Iterator[str]:
    where = settings.place("broadcast", True)
    for match in matches:
        if (ack := match.decorated.ack or settings.ack) != "post":
            yield f"{where}: the record is acked when all handlers are done, and {match.who} has ack = {ack!r}"
    if settings.commit_strategy == "checkpoint":
        yield f'{where}: states and transactions are one handler\'s, and commit_strategy is "checkpoint"'


def _not_told_apart(
    matches: Sequence[Match], settings: IncomingSettings, *, are_objects: bool
) -> Iterator[str]:
    """The first two handlers that would take the same record."""
    reading = reading_of(matches, settings.value_deserializer, are_objects=are_objects)
    plain = [
        (match, kinds)
        for match, kinds in zip(matches, reading.kinds, strict=True)
        if match.decorated.when is None
    ]
    for (one, mine), (other, theirs) in combinations(plain, 2):
        if not mine or not theirs or set(mine) & set(theirs):
            types = f"{name_of(one.payload_type)} and {name_of(other.payload_type)}"
            why = (
                f"what is read does not tell whether a record is for the one or the other ({types})"
            )
            remedy = (
                "give one of them when=, or types of a discriminated union, or set broadcast = true"
            )
            yield f"channel {settings.name!r} has two handlers: {one.who} and {other.who}; {why}: {remedy}"
            return


def _taking_all(matches: Sequence[Match], settings: IncomingSettings) -> list[str]:
    """The handlers that leave no record to nobody, each or together; none: some record may be
    nobody's.
    """
    reading = reading_of(matches, settings.value_deserializer) if matches else Reading(Any, ())
    plain = [
        (one, kinds)
        for one, kinds in zip(matches, reading.kinds, strict=True)
        if one.decorated.when is None
    ]
    if alone := [one.who for one, kinds in plain if not kinds]:
        return alone[:1]
    missing = set(chain.from_iterable(reading.kinds)).difference(*(kinds for _, kinds in plain))
    return [] if missing else [one.who for one, _ in plain]


def unused(channel: IncomingSettings, matches: Sequence[Match]) -> Iterator[str]:
    """What the channel itself says for another kind of function than it has. Of [kafka] it is meant
    for others.
    """
    own = {key: place for key, place in channel.places.items() if "[kafka]" not in place}
    if any(match.spark is not None for match in matches):
        # What is for handlers is a problem there.
        return
    if not any(
        match.handler is not None and match.handler.shape is Shape.BATCH for match in matches
    ):
        said = {
            "batch_max_records": channel.batch_max_records,
            "batch_max_wait": channel.batch_max_wait_s,
        }
        for key in [
            key
            for key, value in said.items()
            if key in own and value != INCOMING.keys[key].parsed_default
        ]:
            yield f"{own[key]}: has no effect: no Batch handler has this channel"
    if not matches and "concurrency_per_partition" in own:
        yield f"{own['concurrency_per_partition']}: has no effect: no handler has this channel"
    if channel.broadcast and "broadcast" in own and len(matches) < 2:
        yield f"{own['broadcast']}: has no effect: the channel has {'one handler' if matches else 'no handler'}"
    if (
        channel.unmatched != "nack"
        and "unmatched" in own
        and (all_of_them := _taking_all(matches, channel))
    ):
        takes = "takes" if len(all_of_them) == 1 else "take"
        yield f"{own['unmatched']}: has no effect: {' and '.join(all_of_them)} {takes} every record"
    for place in [place for key, place in own.items() if key.partition(".")[0] == "spark"][:1]:
        yield f"{place}: has no effect: no @app.spark has this channel"
