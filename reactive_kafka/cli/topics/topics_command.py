"""``reactive-kafka topics``: show topics, and make them as the configuration declares them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from reactive_kafka.broker.client import Inspector
from reactive_kafka.cli import options
from reactive_kafka.cli.cluster_access import (
    BrokerOptions,
    ClusterAccess,
    cluster_of_settings,
    find_cluster,
    settings_of,
    with_application_options,
    with_configuration_options,
)
from reactive_kafka.cli.console_text import aligned, counted
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.paging import coloured, echo_table
from reactive_kafka.cli.progress import waiting_line
from reactive_kafka.cli.topics.topic_channels import named_topics, uses_of
from reactive_kafka.cli.topics.topic_plan import (
    AddPartitions,
    CreateTopic,
    ExistingTopic,
    SetConfig,
    TopicPlan,
    TopicStep,
    plan_topics,
)
from reactive_kafka.config.settings import Settings
from reactive_kafka.errors import BrokerError


@click.group(name="topics", short_help="Show topics, and create those of the configuration.")
def topics() -> None:
    """Show topics, and make them as [topics.NAME] in the configuration declares them.

    \b
    Examples:
      reactive-kafka topics list
      reactive-kafka topics plan billing:app
      reactive-kafka topics apply --config prod.toml
    """


@topics.command(name="list", short_help="Show topics, and the channels that use them.")
@with_application_options
@options.as_json("Print a JSON array with one object per topic.")
def list_(brokers: BrokerOptions, as_json: bool) -> None:
    """Show the topics of the cluster: partitions, replicas, and the channels that use them.

    Topics that the configuration names and the cluster does not have are shown with dashes.
    Internal topics are left out.

    \b
    Examples:
      reactive-kafka topics list
      reactive-kafka topics list billing:app --json
      reactive-kafka topics list --bootstrap-servers localhost:9092
    """
    with waiting_line("asking the brokers"):
        rows = asyncio.run(_rows(find_cluster(brokers)))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = [
        [row["topic"], row["partitions"], row["replication_factor"], ", ".join(row["used_by"])]
        for row in rows
    ]
    head = ("topic", "partitions", "replicas", "channels")
    echo_table(aligned(head, table, left=("topic", "channels")))


async def _rows(cluster: ClusterAccess) -> list[dict[str, Any]]:
    settings = cluster.settings or Settings()
    async with cluster.clients() as (_, inspector):
        existing = {topic: len(found) for topic, found in (await inspector.topics()).items()}
        replicas = await inspector.replication_factors(existing)
    return [
        {
            "topic": topic,
            "partitions": existing.get(topic),
            "replication_factor": replicas.get(topic),
            "is_declared": topic in settings.topics,
            "used_by": [use.text() for use in uses_of(settings, topic)],
        }
        for topic in sorted({*existing, *named_topics(settings)})
    ]


@topics.command(name="plan", short_help="Show what topics apply would do.")
@with_configuration_options
@options.as_json()
def plan(brokers: BrokerOptions, as_json: bool) -> None:
    """Show what topics apply would do, and change nothing.

    What it could not do, because it would take partitions or replicas away, is named. Exits with 0
    in any case.

    \b
    Examples:
      reactive-kafka topics plan
      reactive-kafka topics plan billing:app --config prod.toml --json
    """
    settings = settings_of(brokers)
    planned = asyncio.run(_plan(cluster_of_settings(settings), settings))
    if as_json:
        click.echo(json.dumps(planned.as_json(), indent=2))
        return
    click.echo("\n".join(_lines(settings, planned)))


@topics.command(name="apply", short_help="Create, grow and configure topics.")
@with_configuration_options
@options.asks("topics plan")
@options.as_json()
def apply(brokers: BrokerOptions, yes: bool, as_json: bool) -> None:
    """Create the topics that the configuration declares, and grow and configure those that exist.

    Shows what it will do, asks, and does it. It deletes no topic, takes no partitions and no
    replicas away, and leaves configs alone that are not declared. What would need that is named,
    and the command exits with 1 when it has done the rest.

    \b
    Examples:
      reactive-kafka topics apply
      reactive-kafka topics apply billing:app --config prod.toml --yes
    """
    settings = settings_of(brokers)
    cluster = cluster_of_settings(settings)
    planned = asyncio.run(_plan(cluster, settings))
    # With --json stdout is for the JSON alone.
    click.echo("\n".join(_lines(settings, planned)), err=as_json)
    if planned.steps:
        options.ask(f"Make {counted(len(planned.steps), 'change')}?", yes=yes)
        with waiting_line("changing topics"):
            asyncio.run(_carry_out(cluster, planned))
        click.echo(f"made {counted(len(planned.steps), 'change')}", err=as_json)
    if as_json:
        click.echo(json.dumps(planned.as_json(), indent=2))
    if planned.refused:
        raise CommandFailed(
            f"{counted(len(planned.refused), 'declaration')} cannot be met: see above"
        )


_COLOURS = {CreateTopic: "green", AddPartitions: "yellow", SetConfig: "yellow"}


def _lines(settings: Settings, planned: TopicPlan) -> list[str]:
    if not settings.topics:
        return [f"{settings.source} declares no topics: write [topics.NAME]"]
    lines = [coloured(step.text(), _COLOURS[type(step)]) for step in planned.steps]
    lines += [coloured(f"refused: {line}", "red") for line in planned.refused]
    if lines:
        return lines
    return [f"{counted(len(settings.topics), 'topic')}: everything is as declared"]


async def _plan(cluster: ClusterAccess, settings: Settings) -> TopicPlan:
    async with cluster.clients() as (_, inspector):
        return plan_topics(settings.topics.values(), await _existing(inspector, settings))


async def _existing(inspector: Inspector, settings: Settings) -> dict[str, ExistingTopic]:
    """Return those of the declared topics that exist, and what the cluster says of them."""
    partitions = await inspector.topics(list(settings.topics))
    names = {name for topic in settings.topics.values() for name in topic.config}
    configs: dict[str, dict[str, str | None]] = {}
    if names:
        configs = await inspector.topic_configs(list(partitions), names)
    replicas = await inspector.replication_factors(list(partitions))
    return {
        topic: ExistingTopic(len(found), replicas.get(topic), configs.get(topic))
        for topic, found in partitions.items()
    }


async def _carry_out(cluster: ClusterAccess, planned: TopicPlan) -> None:
    done = 0
    async with cluster.clients() as (_, inspector):
        for step in planned.steps:
            try:
                await _do(inspector, step)
            except BrokerError as error:
                raise CommandFailed(
                    f"{step.text()}: {error}; {counted(done, 'change')} made before that"
                ) from error
            done += 1


async def _do(inspector: Inspector, step: TopicStep) -> None:
    match step:
        case CreateTopic():
            await inspector.create_topic(
                step.topic, step.partitions, step.replication_factor, step.config
            )
        case AddPartitions():
            await inspector.add_partitions(step.topic, step.after)
        case SetConfig():
            await inspector.set_topic_config(step.topic, step.after)
