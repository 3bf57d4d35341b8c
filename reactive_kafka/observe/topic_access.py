"""Reports that an outgoing channel cannot reach its topic, before anything is sent. Pure."""

from __future__ import annotations

from reactive_kafka.errors import BrokerError
from reactive_kafka.observe.events.base import Observer
from reactive_kafka.observe.events.channel_events import NotWritable
from reactive_kafka.observe.events.reading import TopicFound

REPORTED_AFTER_S = 2.0
"""How long attempts must fail before that is reported. Brokers take a moment to start, or to create
a topic.
"""


class TopicAccessReports:
    """Reports each kind of error that keeps a channel from its topic once, and the end of it."""

    def __init__(self, channel: str, topic: str, observer: Observer) -> None:
        self._channel = channel
        self._topic = topic
        self._observer = observer
        self._failing_since: float | None = None
        self._reported: type[BrokerError] | None = None

    def failed(self, error: BrokerError, now: float) -> None:
        """Note that connecting or finding the topic has failed. *now* is monotonic, in seconds."""
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since < REPORTED_AFTER_S or type(error) is self._reported:
            return
        self._reported = type(error)
        self._observer.on(NotWritable(channel=self._channel, topic=self._topic, reason=str(error)))

    def found(self) -> None:
        """Note that the topic was found."""
        if self._reported is not None:
            self._observer.on(TopicFound(channel=self._channel, topic=self._topic))
        self._failing_since = None
        self._reported = None
