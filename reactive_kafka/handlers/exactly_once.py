"""Handlers whose outputs and positions are one transaction, and what else has to be so for that. No
I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from reactive_kafka.broker.kafka_connector import EMBEDDED
from reactive_kafka.config.schema import IncomingSettings, OutgoingSettings
from reactive_kafka.handlers.spec import IncomingSpec, OutgoingSpec

ISOLATION = "isolation_level"
NEEDED = (
    ("commit_strategy", "throttled"),
    ("ordering", "partition"),
    ("ack", "post"),
    ("keep_out_of_order_acks", False),
    ("broadcast", False),
)
"""What a channel has to be set to. Positions are part of transactions, one after the other in each
partition.
"""


def transactional_ids(settings: Sequence[OutgoingSettings], problems: list[str]) -> None:
    """Channels that share a ``transactional_id`` share producers: they have the same client
    properties.
    """
    first: dict[str, OutgoingSettings] = {}
    for one in settings:
        if one.transactional_id is None:
            continue
        where = f"[outgoing.{one.name}] transactional_id = {one.transactional_id!r}"
        if one.client["bootstrap_servers"] == EMBEDDED:
            problems.append(
                f"{where}: the embedded broker has no transactions; leave it out, or use a Kafka"
            )
        other = first.setdefault(one.transactional_id, one)
        if other.client != one.client or other.send_timeout_s != one.send_timeout_s:
            problems.append(
                f"{where}: channel {other.name!r} has the same one and other client properties; give each its own, or "
                "both the same properties"
            )


def exactly_once(
    spec: IncomingSpec, who: str, outgoing: Mapping[str, OutgoingSpec], problems: list[str]
) -> IncomingSpec:
    """The channel, with the id of its handler's transactions if it has any."""
    targets = [outgoing[name].settings for name in spec.outgoing if name in outgoing]
    ids = list(dict.fromkeys(target.transactional_id for target in targets))
    if not any(ids):
        return spec
    if len(ids) > 1:
        named = ", ".join(
            f"{target.name!r} has {target.transactional_id or 'none'}" for target in targets
        )
        problems.append(
            f"{who} sends to channels with different transactional_ids ({named}): what a handler sends is one "
            "transaction, so give all of them the same one, or none"
        )
        return spec
    if len(targets) < len(spec.outgoing):
        problems.append(
            f"{who} sends to a memory channel, too, which is no part of its transaction: leave one of them out"
        )
    problems += (
        f"{who} is exactly once, with transactional_id = {ids[0]!r}: {why}"
        for why in _misfits(spec, targets)
    )
    return replace(spec, transactional_id=ids[0], settings=reading_committed(spec.settings))


def _misfits(spec: IncomingSpec, targets: Sequence[OutgoingSettings]) -> Iterator[str]:
    settings = spec.settings
    for key, needed in NEEDED:
        if (given := getattr(settings, key)) != needed:
            yield f"it needs {key} = {_shown(needed)}, and {settings.place(key, given)} is given"
    if settings.assign:
        yield "it needs a group that assigns partitions, which fences members that were frozen; not assign"
    servers = {target.client["bootstrap_servers"] for target in targets} | {
        settings.client["bootstrap_servers"]
    }
    if len(servers) > 1:
        yield f"a transaction is one cluster's, and there are {' and '.join(sorted(map(repr, servers)))}"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


def reading_committed(settings: IncomingSettings) -> IncomingSettings:
    """The settings of a channel that reads what is committed, unless it says otherwise itself."""
    client = {ISOLATION: "read_committed", **settings.client}
    delayed = settings.delayed_retry
    if delayed is not None:
        delayed = replace(delayed, client={ISOLATION: "read_committed", **delayed.client})
    return replace(settings, client=client, delayed_retry=delayed)


def reads_transactions(spec: IncomingSpec, outgoing: Mapping[str, OutgoingSpec]) -> IncomingSpec:
    """The channel, reading what is committed where the application itself writes a topic of its in
    transactions.
    """
    settings = spec.settings
    reads = settings.subscription.reads
    written = (
        one.settings.topic for one in outgoing.values() if one.settings.transactional_id is not None
    )
    return replace(spec, settings=reading_committed(settings)) if any(map(reads, written)) else spec


def of_memory(
    outgoing: Mapping[str, OutgoingSpec], names: Sequence[str], who: str, problems: list[str]
) -> None:
    """A handler of a memory channel sends to no transactional one: what it takes has no
    position.
    """
    for name in names:
        if name in outgoing and outgoing[name].settings.transactional_id is not None:
            problems.append(
                f"{who} takes values of a memory channel, and [outgoing.{name}] is transactional: a transaction goes "
                "with the position of a record; have the handler of the record send it"
            )
