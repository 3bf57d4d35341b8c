"""Whether a channel can write to its topic, told from its start on, before anything is sent.
Pure.
"""

from __future__ import annotations

from reactive_kafka.errors import BrokerError
from reactive_kafka.observe.events.base import Observer
from reactive_kafka.observe.events.channel import NotWritable
from reactive_kafka.observe.events.reading import TopicFound

TOLD_AFTER_S = 2.0
"""How long nothing works before that is told: brokers take a moment to create a topic, or to
start.
"""


class Writable:
    """Tells once per kind of trouble what keeps a channel from its topic, and once that it is
    over.
    """

    def __init__(self, channel: str, topic: str, observer: Observer) -> None:
        self._channel = channel
        self._topic = topic
        self._observer = observer
        self._since: float | None = None
        self._told: type[BrokerError] | None = None

    def failed(self, error: BrokerError, now: float) -> None:
        """An attempt to connect, or to find the topic, has failed; *now* is monotonic."""
        self._since = now if self._since is None else self._since
        if now - self._since >= TOLD_AFTER_S and type(error) is not self._told:
            self._told = type(error)
            self._observer.on(
                NotWritable(channel=self._channel, topic=self._topic, reason=str(error))
            )

    def found(self) -> None:
        """The topic is there."""
        if self._told is not None:
            self._observer.on(TopicFound(channel=self._channel, topic=self._topic))
        self._since = self._told = None
