"""The rules of handlers whose outputs and positions are one transaction: exactly once. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from reactive_kafka.broker.kafka_connector import EMBEDDED
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings
from reactive_kafka.planning.channel_handlers import ChannelHandler
from reactive_kafka.planning.channel_plans import IncomingPlan
from reactive_kafka.planning.problems import ProblemReport

ISOLATION = "isolation_level"
REQUIRED_SETTINGS = (
    ("commit_strategy", "throttled"),
    ("ordering", "partition"),
    ("ack", "post"),
    ("keep_out_of_order_acks", False),
    ("broadcast", False),
)
"""What a channel has to be set to. Its positions are part of transactions, which follow each other
in each partition.
"""


def shared_transactional_ids(channels: Iterable[OutgoingSettings]) -> Iterator[str]:
    """Yield what keeps channels from having the ``transactional_id`` that they are given.

    Channels with the same id share producers, so they need the same client properties.
    """
    first_with: dict[str, OutgoingSettings] = {}
    for channel in channels:
        if channel.transactional_id is None:
            continue
        where = f"[outgoing.{channel.name}] transactional_id = {channel.transactional_id!r}"
        if channel.client["bootstrap_servers"] == EMBEDDED:
            yield f"{where}: the embedded broker has no transactions; leave it out, or use a Kafka"
        first = first_with.setdefault(channel.transactional_id, channel)
        if first.client != channel.client or first.send_timeout_s != channel.send_timeout_s:
            yield (
                f"{where}: channel {first.name!r} has the same id, but other client properties; "
                "give each channel its own id, or both the same properties"
            )


def with_transactions(
    plan: IncomingPlan,
    who: str,
    outgoing: Mapping[str, OutgoingSettings],
    report: ProblemReport,
) -> IncomingPlan:
    """Return the plan with the id of its handlers' transactions, if they have any.

    Such a channel reads only what is committed. So does one whose own topic the application writes
    in transactions.

    Args:
        who: The handlers of the channel, for errors.
        outgoing: The outgoing Kafka channels of the application.
    """
    reads = plan.settings.subscription.reads
    transactional = [each for each in outgoing.values() if each.transactional_id is not None]
    if any(reads(channel.topic) for channel in transactional):
        plan = replace(plan, settings=reading_committed(plan.settings))
    targets = [outgoing[name] for name in plan.outgoing if name in outgoing]
    ids = list(dict.fromkeys(target.transactional_id for target in targets))
    if not any(ids):
        return plan
    if len(ids) > 1:
        named = ", ".join(
            f"{target.name!r} has {target.transactional_id or 'none'}" for target in targets
        )
        report.add(
            f"{who} sends to channels with different transactional_ids ({named}): what a handler "
            "sends is one transaction, so give all of them the same one, or none"
        )
        return plan
    if len(targets) < len(plan.outgoing):
        report.add(
            f"{who} sends to a memory channel, too, which cannot be part of its transaction: send "
            "to either the memory channel or the transactional ones"
        )
    for why in _unfit_settings(plan.settings, targets):
        report.add(f"{who} is exactly once, with transactional_id = {ids[0]!r}: {why}")
    return replace(plan, transactional_id=ids[0], settings=reading_committed(plan.settings))


def _unfit_settings(
    settings: IncomingSettings, targets: Sequence[OutgoingSettings]
) -> Iterator[str]:
    for key, required in REQUIRED_SETTINGS:
        value = getattr(settings, key)
        if value != required:
            where = settings.place(key, value)
            yield f"it needs {key} = {_as_written(required)}, and {where} is given"
    if settings.assign:
        yield (
            "it needs a group that assigns partitions, which fences members that were frozen; "
            "not assign"
        )
    servers = {target.client["bootstrap_servers"] for target in targets}
    servers.add(settings.client["bootstrap_servers"])
    if len(servers) > 1:
        named = " and ".join(sorted(map(repr, servers)))
        yield f"a transaction is one cluster's, and there are {named}"


def _as_written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


def reading_committed(settings: IncomingSettings) -> IncomingSettings:
    """Return settings that read what is committed, unless they have an isolation level."""
    client = {ISOLATION: "read_committed", **settings.client}
    delayed = settings.delayed_retry
    if delayed is not None:
        delayed = replace(delayed, client={ISOLATION: "read_committed", **delayed.client})
    return replace(settings, client=client, delayed_retry=delayed)


def transactional_outputs_of_memory(
    handler: ChannelHandler, outgoing: Mapping[str, OutgoingSettings]
) -> Iterator[str]:
    """Yield a problem for each transactional channel that a handler of a memory channel sends to.

    What it takes has no position that could be part of the transaction.
    """
    for name in handler.outgoing:
        if name in outgoing and outgoing[name].transactional_id is not None:
            yield (
                f"{handler.who} takes values of a memory channel, and [outgoing.{name}] is "
                "transactional: a transaction goes with the position of a record; have the "
                "handler of the record send it"
            )
