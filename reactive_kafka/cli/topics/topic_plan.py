"""Decides what makes topics as the configuration declares them. No I/O.

A topic is created, gets more partitions, and gets configs. Nothing is ever taken away: what would
need that is refused, and named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reactive_kafka.cli.console_text import counted
from reactive_kafka.config.tables import TopicSettings

DEFAULT_PARTITIONS = 1


@dataclass(frozen=True, slots=True)
class ExistingTopic:
    """A topic as the cluster has it.

    Attributes:
        partitions: How many it has.
        replication_factor: The replicas of each partition. None: the cluster does not say.
        config: Those of the declared configs that the cluster knows. None: it does not say.
    """

    partitions: int
    replication_factor: int | None = None
    config: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """The topic does not exist."""

    topic: str
    partitions: int
    replication_factor: int | None
    config: Mapping[str, str]

    def text(self) -> str:
        """Return the step as one line."""
        parts = [counted(self.partitions, "partition")]
        if self.replication_factor is not None:
            parts.append(counted(self.replication_factor, "replica"))
        parts += [f"{name} = {value}" for name, value in sorted(self.config.items())]
        return f"create {self.topic}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """The topic has too few partitions. Some keys change their partition."""

    topic: str
    before: int
    after: int

    def text(self) -> str:
        """Return the step as one line."""
        return (
            f"grow {self.topic}: {self.before} to {self.after} partitions; new records of a key "
            "may go to another partition"
        )


@dataclass(frozen=True, slots=True)
class SetConfig:
    """Configs of the topic differ. ``before`` has None for a config without a value."""

    topic: str
    before: Mapping[str, str | None]
    after: Mapping[str, str]

    def text(self) -> str:
        """Return the step as one line."""
        changes = [
            f"{name} = {value} (was {_shown(self.before.get(name))})"
            for name, value in sorted(self.after.items())
        ]
        return f"configure {self.topic}: {', '.join(changes)}"


def _shown(value: str | None) -> str:
    return "not set" if value in (None, "") else str(value)


TopicStep = CreateTopic | AddPartitions | SetConfig


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What to do, in order, and what cannot be done: one line each."""

    steps: tuple[TopicStep, ...]
    refused: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON data."""
        return {
            "steps": [
                {"do": _NAMES[type(step)], **{name: _plain(step, name) for name in step.__slots__}}
                for step in self.steps
            ],
            "refused": list(self.refused),
        }


_NAMES = {CreateTopic: "create", AddPartitions: "grow", SetConfig: "configure"}


def _plain(step: TopicStep, name: str) -> Any:
    value = getattr(step, name)
    return dict(value) if isinstance(value, Mapping) else value


def plan_topics(
    declared: Iterable[TopicSettings], existing: Mapping[str, ExistingTopic]
) -> TopicPlan:
    """Return the steps that make the topics as they are declared. All other topics stay."""
    steps: list[TopicStep] = []
    refused: list[str] = []
    for topic in declared:
        found = existing.get(topic.name)
        if found is None:
            partitions = topic.partitions or DEFAULT_PARTITIONS
            steps.append(
                CreateTopic(topic.name, partitions, topic.replication_factor, topic.config)
            )
        else:
            steps += _changes(topic, found)
            refused += _refusals(topic, found)
    return TopicPlan(tuple(steps), tuple(refused))


def _changes(topic: TopicSettings, found: ExistingTopic) -> list[TopicStep]:
    steps: list[TopicStep] = []
    if topic.partitions is not None and topic.partitions > found.partitions:
        steps.append(AddPartitions(topic.name, found.partitions, topic.partitions))
    known = found.config or {}
    after = {
        name: value
        for name, value in topic.config.items()
        if name in known and not _is_same(known[name], value)
    }
    if after:
        steps.append(SetConfig(topic.name, {name: known[name] for name in after}, after))
    return steps


def _is_same(value: str | None, wanted: str) -> bool:
    """Return whether two texts mean the same config: lists have blanks after their commas."""
    return _items(value or "") == _items(wanted)


def _items(value: str) -> Sequence[str]:
    return [item.strip() for item in value.split(",")]


def _refusals(topic: TopicSettings, found: ExistingTopic) -> list[str]:
    lines = []
    if topic.partitions is not None and topic.partitions < found.partitions:
        lines.append(
            f"{topic.name} has {found.partitions} partitions, and {topic.partitions} are declared: "
            "Kafka cannot take partitions away"
        )
    factor = found.replication_factor
    wanted = topic.replication_factor
    if wanted is not None and factor is not None and wanted != factor:
        lines.append(
            f"{topic.name} has {counted(factor, 'replica')} of each partition, and {wanted} are "
            "declared: move replicas with Kafka's kafka-reassign-partitions.sh"
        )
    if not topic.config:
        return lines
    if found.config is None:
        lines.append(
            f"the configs of {topic.name} cannot be read: is the right DESCRIBE_CONFIGS missing?"
        )
        return lines
    unknown = sorted(topic.config.keys() - found.config.keys())
    if unknown:
        lines.append(f"{topic.name}: the cluster knows no topic config {', '.join(unknown)}")
    return lines
