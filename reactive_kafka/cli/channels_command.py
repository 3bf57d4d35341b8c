"""``reactive-kafka channels``: the channels of an application or a configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from reactive_kafka.cli import options
from reactive_kafka.cli.app_loading import load_app
from reactive_kafka.cli.cluster_access import (
    BrokerOptions,
    settings_of,
    with_configuration_options,
)
from reactive_kafka.cli.console_text import aligned
from reactive_kafka.config.settings import IncomingSettings, OutgoingSettings, Settings
from reactive_kafka.planning.channel_plans import AppPlan, HandlerPlan, IncomingPlan

ChannelRow = dict[str, Any]


@click.command(name="channels", short_help="Show the channels of an application.")
@with_configuration_options
@options.as_json("Print a JSON object with the incoming, outgoing and memory channels.")
def channels(brokers: BrokerOptions, as_json: bool) -> None:
    """Show the channels of an application: topics, groups, handlers, formats, strategies.

    Without MODULE:APP it shows the channels of the configuration, which does not say the handlers.
    Connects to nothing. `check` prints every setting.

    \b
    Examples:
      reactive-kafka channels billing:app
      reactive-kafka channels --config prod.toml --json
    """
    plan = None
    if brokers.app is not None:
        app = load_app(brokers.app, brokers.app_dir)
        settings = app.configure(brokers.config)
        plan = app.plan
    else:
        settings = settings_of(brokers)
    found = channel_rows(settings, plan)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo("\n".join(channel_tables(found, has_handlers=plan is not None)))


def channel_rows(settings: Settings, plan: AppPlan | None) -> dict[str, list[ChannelRow]]:
    """Return the channels as JSON data. Without a plan their handlers are null: not known."""
    return {
        "incoming": [
            _incoming(channel, None if plan is None else plan.incoming[name])
            for name, channel in settings.incoming.items()
        ],
        "outgoing": [
            _outgoing(channel, None if plan is None else _senders(name, plan))
            for name, channel in settings.outgoing.items()
        ],
        "memory": [
            {
                "channel": name,
                "from": None if plan is None else _senders(name, plan),
                "handlers": None if plan is None else _names(plan.memory[name].handlers),
            }
            for name in settings.memory
        ],
    }


def _incoming(channel: IncomingSettings, plan: IncomingPlan | None) -> ChannelRow:
    handlers = None
    if plan is not None:
        handlers = _names(plan.handlers)
        if plan.spark is not None:
            function = plan.spark.function
            handlers = [f"{function.__module__}.{function.__qualname__}"]
    return {
        "channel": channel.name,
        "topics": list(channel.topics),
        "pattern": channel.pattern,
        "assign": [str(assigned) for assigned in channel.assign],
        "group": channel.group_id,
        "handlers": handlers,
        "on_spark": None if plan is None else plan.spark is not None,
        "format": channel.value_deserializer,
        "commit_strategy": channel.commit_strategy,
        "failure_strategy": channel.failure_strategy,
    }


def _outgoing(channel: OutgoingSettings, senders: list[str] | None) -> ChannelRow:
    return {
        "channel": channel.name,
        "topic": channel.topic,
        "from": senders,
        "format": channel.value_serializer,
        "transactional": channel.transactional_id is not None,
    }


def _names(handlers: tuple[HandlerPlan, ...]) -> list[str]:
    return list(dict.fromkeys(plan.handler.name for plan in handlers))


def _senders(channel: str, plan: AppPlan) -> list[str]:
    """Return the handlers and sources whose results go to a channel."""
    names = [each.handler.name for each in plan.handlers if channel in each.outgoing]
    names += [source.name for source in plan.sources if channel in source.outgoing]
    return list(dict.fromkeys(names))


def channel_tables(found: dict[str, list[ChannelRow]], *, has_handlers: bool) -> Iterator[str]:
    """Yield the lines of one table for each direction that has channels."""
    if not any(found.values()):
        yield "there are no channels"
        return
    handler = ("handler",) if has_handlers else ()
    sender = ("from",) if has_handlers else ()
    if found["incoming"]:
        head = ("incoming", "reads", "group", *handler, "format", "commits", "on failure")
        yield from _table(head, [_incoming_cells(row, has_handlers) for row in found["incoming"]])
    if found["outgoing"]:
        if found["incoming"]:
            yield ""
        head = ("outgoing", "writes", *sender, "format", "transactions")
        yield from _table(head, [_outgoing_cells(row, has_handlers) for row in found["outgoing"]])
    if found["memory"]:
        if found["incoming"] or found["outgoing"]:
            yield ""
        head = ("memory", *sender, *handler)
        yield from _table(head, [_memory_cells(row, has_handlers) for row in found["memory"]])


def _table(head: tuple[str, ...], rows: list[list[object]]) -> list[str]:
    return aligned(head, rows, left=head)


def _incoming_cells(row: ChannelRow, has_handlers: bool) -> list[object]:
    reads = ", ".join(row["topics"] or row["assign"])
    if row["pattern"] is not None:
        reads = f"pattern {row['pattern']}"
    cells: list[object] = [row["channel"], reads, row["group"]]
    if has_handlers:
        where = " (Spark)" if row["on_spark"] else ""
        cells.append(f"{', '.join(row['handlers'])}{where}" if row["handlers"] else None)
    return [*cells, row["format"], row["commit_strategy"], row["failure_strategy"]]


def _outgoing_cells(row: ChannelRow, has_handlers: bool) -> list[object]:
    cells: list[object] = [row["channel"], row["topic"]]
    if has_handlers:
        cells.append(", ".join(row["from"]) or None)
    return [*cells, row["format"], "yes" if row["transactional"] else None]


def _memory_cells(row: ChannelRow, has_handlers: bool) -> list[object]:
    if not has_handlers:
        return [row["channel"]]
    return [row["channel"], ", ".join(row["from"]) or None, ", ".join(row["handlers"]) or None]
