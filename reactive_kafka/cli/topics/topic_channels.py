"""Which channels read and write a topic. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from reactive_kafka.config.settings import Settings


class TopicUse(NamedTuple):
    """What a channel does with a topic."""

    channel: str
    # reads, writes, dead letters, retries
    use: str

    def text(self) -> str:
        """Return the use in a few words."""
        if self.use in ("dead letters", "retries"):
            return f"{self.use} of {self.channel}"
        return f"{self.channel} {self.use}"


def uses_of(settings: Settings, topic: str) -> list[TopicUse]:
    """Return what the channels of a configuration do with a topic."""
    uses = [
        TopicUse(channel.name, "writes")
        for channel in settings.outgoing.values()
        if channel.topic == topic
    ]
    for incoming in settings.incoming.values():
        if incoming.subscription.reads(topic):
            uses.append(TopicUse(incoming.name, "reads"))
        if incoming.delayed_retry is not None and topic in incoming.delayed_retry.topics:
            uses.append(TopicUse(incoming.name, "retries"))
        letters = incoming.dead_letter_queue
        if letters is not None and letters.topic == topic:
            uses.append(TopicUse(incoming.name, "dead letters"))
    return uses


def named_topics(settings: Settings) -> set[str]:
    """Return every topic that the configuration names: for channels, or in ``[topics.NAME]``."""
    return {*settings.topics, *_topics_of_channels(settings)}


def _topics_of_channels(settings: Settings) -> Iterator[str]:
    for outgoing in settings.outgoing.values():
        yield outgoing.topic
    for incoming in settings.incoming.values():
        yield from incoming.subscription.topics
        if incoming.delayed_retry is not None:
            yield from incoming.delayed_retry.topics
        if incoming.dead_letter_queue is not None:
            yield incoming.dead_letter_queue.topic
