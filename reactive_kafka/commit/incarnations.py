"""Which incarnation of its topic a position belongs to: a topic that is deleted and made anew gets another id. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reactive_kafka.records import TopicPartition


@dataclass(slots=True)
class _LastRead:
    """Of which incarnation a partition was read last."""

    of: str
    has_failed: bool = False  # the channel has failed since, because that is not the topic any more


class Incarnations:
    """The ids of topics, as far as brokers have told them to the clients of one channel; through its restarts."""

    def __init__(self) -> None:
        self._now: dict[str, str] = {}
        self._past: dict[str, set[str]] = {}
        self._read: dict[TopicPartition, _LastRead] = {}

    def told(self, ids: Mapping[str, str]) -> None:
        """A broker has told these. One that has not heard of the newest incarnation tells nothing new."""
        for topic, told in ids.items():
            past, before = self._past.setdefault(topic, set()), self._now.get(topic)
            if told in past:
                continue
            if before not in (None, told):
                past.add(before)
            self._now[topic] = told

    def of(self, topic: str) -> str | None:
        """The id of a topic; None: nobody has told one."""
        return self._now.get(topic)

    def reads(self, partition: TopicPartition) -> str | None:
        """A partition is read from here on: of which incarnation; None: it is not known."""
        now = self._now.get(partition.topic)
        if now is not None:
            self._read[partition] = _LastRead(now)
        return now

    def last_read(self, partition: TopicPartition) -> str | None:
        """Of which incarnation a partition was read last by this channel; None: it is not known."""
        last = self._read.get(partition)
        return None if last is None else last.of

    def failed(self, partition: TopicPartition) -> None:
        """The channel fails, as the topic was made anew, and somebody has to choose where it goes on."""
        if (last := self._read.get(partition)) is not None:
            last.has_failed = True

    def has_failed(self, partition: TopicPartition) -> bool:
        """Whether the channel has failed for it, and has not read it since."""
        return (last := self._read.get(partition)) is not None and last.has_failed

    def why_void(self, topic: str, belongs_to: str | None) -> str | None:
        """Why a position of the incarnation that it *belongs to* says nothing of the topic as it is now, if so.

        Of the id that a position belongs to the beginning is enough: no more is stored.
        """
        now = self._now.get(topic)
        if now is None or belongs_to is None or now.startswith(belongs_to):
            return None
        return f"topic {topic!r} was deleted and made anew: its id was {belongs_to}, and is {now}"
