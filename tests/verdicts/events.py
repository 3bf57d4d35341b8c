"""What the tests of other rooms need of events: the value itself."""

from __future__ import annotations

from reactive_kafka.verdicts.outbox import OutboxEvent as OutboxEvent
