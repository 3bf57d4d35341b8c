"""What several attributes of an outgoing channel say together. Pure."""

from __future__ import annotations

from reactive_kafka.config.microprofile import converters as read
from reactive_kafka.config.microprofile.smallrye_channel import SHARED, SmallRyeChannel


class SmallRyeOutgoing(SmallRyeChannel):
    """An outgoing channel."""

    side = "outgoing"

    def read_rules(self) -> None:
        self.convert("topic", "topic", read.text)
        is_safe = self.find("transactional.id") or self.said(
            "enable.idempotence", read.boolean, False
        )
        acks = self.find("acks")
        if acks is not None and not acks.name.startswith(SHARED):
            self.set("acks", read.scalar(acks.text), acks)
        elif acks is None and not is_safe:
            self.set("acks", 1, None)
        if self.find("delivery.timeout.ms") is None:
            self.set("send_timeout", "2m", None)
        self._events()
        # SmallRye's waitForWriteCompletion is about the ack, which follows the write here in any
        # case. Our own wait_for_write is about the next record, and has no counterpart there.
        for name in ("merge", "health-topic-verification-enabled", "waitForWriteCompletion"):
            self.said(name, read.boolean, False)

    def _events(self) -> None:
        """CloudEvents: with a type and a source all records are events; else those that say so
        themselves.
        """
        if not self.said("cloud-events", read.boolean, True):
            self.set("cloud_events", False, self.find("cloud-events"))
            return
        given = {
            part: self.find(f"cloud-events-{part}")
            for part in ("type", "source", "subject", "mode")
        }
        if given["type"] is not None and given["source"] is not None:
            for part, one in given.items():
                if one is not None:
                    self.set(f"cloud_events.{part}", one.text, one)
            return
        for one in filter(None, given.values()):
            self.notes.wrong(
                one, "not supported without both cloud-events-type and cloud-events-source"
            )
