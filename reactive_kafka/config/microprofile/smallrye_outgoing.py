"""The rules of outgoing channels of SmallRye's. Pure."""

from __future__ import annotations

from reactive_kafka.config.microprofile import converters as read
from reactive_kafka.config.microprofile.smallrye_channel import SHARED, SmallRyeChannel


class SmallRyeOutgoing(SmallRyeChannel):
    """An outgoing channel of SmallRye's."""

    side = "outgoing"

    def read_rules(self) -> None:
        """Note what several attributes say together."""
        self.convert("topic", "topic", read.text)
        is_safe = self.find("transactional.id") or self.parsed(
            "enable.idempotence", read.boolean, False
        )
        acks = self.find("acks")
        if acks is not None and not acks.name.startswith(SHARED):
            self.set("acks", read.scalar(acks.text), acks)
        elif acks is None and not is_safe:
            self.set("acks", 1, None)
        if self.find("delivery.timeout.ms") is None:
            self.set("send_timeout", "2m", None)
        self._cloud_events()
        # SmallRye's waitForWriteCompletion is about the ack, which here always follows the write.
        # Our wait_for_write is about the next record, which SmallRye cannot hold back.
        for name in ("merge", "health-topic-verification-enabled", "waitForWriteCompletion"):
            self.parsed(name, read.boolean, False)

    def _cloud_events(self) -> None:
        """Set which records are CloudEvents.

        With a type and a source all are. Otherwise only those that say so themselves.
        """
        if not self.parsed("cloud-events", read.boolean, True):
            self.set("cloud_events", False, self.find("cloud-events"))
            return
        given = {
            part: self.find(f"cloud-events-{part}")
            for part in ("type", "source", "subject", "mode")
        }
        if given["type"] is not None and given["source"] is not None:
            for part, attribute in given.items():
                if attribute is not None:
                    self.set(f"cloud_events.{part}", attribute.text, attribute)
            return
        for attribute in filter(None, given.values()):
            self.notes.wrong(
                attribute, "not supported without both cloud-events-type and cloud-events-source"
            )
