"""What several attributes of an incoming channel say together: its topics, parallelism, failures,
store. Pure.
"""

from __future__ import annotations

from urllib.parse import quote

from reactive_kafka.config.microprofile import converters as read
from reactive_kafka.config.microprofile.smallrye_channel import SmallRyeChannel


class SmallRyeIncoming(SmallRyeChannel):
    """An incoming channel."""

    side = "incoming"

    def read_rules(self) -> None:
        self._reads()
        self._group()
        if not self.convert("key.deserializer", "key_deserializer", read.java_format):
            self.set("key_deserializer", "string", None)
        self._parallelism()
        self._watch()
        self._failures()
        self._checkpoint()
        if not self.said("graceful-shutdown", read.boolean, True):
            self.set("drain_timeout", "0s", self.find("graceful-shutdown"))
        if not self.said("cloud-events", read.boolean, True):
            self.set("cloud_events", False, self.find("cloud-events"))
        for name in ("pausable", "health-topic-verification-enabled", "specific.avro.reader"):
            self.said(name, read.boolean, False)

    def _reads(self) -> None:
        """What it reads: partitions, a pattern, or topics."""
        topic = self.find("topic")
        assigned = self.find("assign-seek")
        named = topic.text if topic is not None else self.name
        if assigned is not None:
            try:
                self.set("assign", read.assigned(assigned.text, named), assigned)
            except ValueError as error:
                self.set("assign", assigned.text, assigned, str(error))
        elif self.said("pattern", read.boolean, False):
            self.set("pattern", named, topic or self.find("pattern"))
        elif topic is not None:
            self.set("topic", named, topic)
        if assigned is None:
            self.convert("topics", "topics", read.names)

    def _group(self) -> None:
        """The group; without one the application's name, else one that nobody else has."""
        if self.convert("group.id", "group_id", read.text):
            return
        if (application := self.values.find("quarkus.application.name")) is not None:
            self.set("group_id", application.text, application)
            return
        self.set("group_id", f"{self.name}-{self.values.new_id}", None)
        why = "without group.id and quarkus.application.name the group is a new one at each start, as SmallRye has it"
        self.notes.warn_at(
            self.origin, f"mp.messaging.incoming.{self.name}", f"{why}: nothing is taken up again"
        )

    def _parallelism(self) -> None:
        """Consumers, handlers at once, their order, and how many records may wait."""
        is_batch = self.said("batch", read.boolean, False)
        ordered = self.find("ordered")
        copies = self.said("concurrency", read.integer, 1)
        merged = self.said("partitions", read.integer, 1)
        consumers = "concurrency" if copies > 1 or merged <= 1 else "partitions"
        if max(copies, merged) > 1 or self.find(consumers) is not None:
            self.set(
                "consumers", copies if consumers == "concurrency" else merged, self.find(consumers)
            )
        polled = self.said("max.poll.records", read.integer, 500)
        handlers = copies
        if ordered is not None:
            if is_batch:
                self.notes.wrong(ordered, "batches are not ordered: leave out batch, or ordered")
            self.convert("ordered", "ordering", read.order)
            handlers *= self.said("ordered.max-concurrency", read.integer, polled)
            self.set("concurrency", handlers, self.find("ordered.max-concurrency"))
        else:
            # Each copy of a channel calls its method one record after the other, and so keeps its
            # partitions' order.
            is_partitioned = copies > 1 or self._strategy() == "checkpoint"
            self.set("ordering", "partition" if is_partitioned else "unordered", None)
            if copies > 1:
                self.set("concurrency", copies, self.find("concurrency"))
            if (bound := self.find("ordered.max-concurrency")) is not None:
                self.notes.warn(
                    bound, "has no effect without ordered: records are handled one after the other"
                )
        if is_batch:
            self.set(
                "batch_max_records", polled, self.find("max.poll.records") or self.find("batch")
            )
            self.set("batch_max_wait", "0s", self.find("batch"))
        factor = self.find("max-queue-size-factor")
        if factor is not None or self.find("max.poll.records") is not None:
            room = (
                self.said("max-queue-size-factor", read.integer, 2) * polled * max(copies, merged)
            )
            self.set("max_in_flight", max(room, handlers), factor or self.find("max.poll.records"))

    def _strategy(self) -> str:
        given = self.find("commit-strategy")
        if given is not None:
            return given.text
        return "ignore" if self.said("enable.auto.commit", read.boolean, False) else "throttled"

    def _watch(self) -> None:
        """The watch for records that hang is the throttled strategy's there; here it is every
        strategy's.
        """
        name = "throttled.unprocessed-record-max-age.ms"
        if self._strategy() in ("latest", "checkpoint") and self.find(name) is None:
            self.set("unprocessed_record_max_age", "0s", None)

    def _failures(self) -> None:
        """What cannot be decoded, and the tables of failures."""
        strategy = self.find("failure-strategy")
        fails = self.find("fail-on-deserialization-failure")
        named = strategy.text if strategy is not None else "fail"
        if self.said("fail-on-deserialization-failure", read.boolean, True):
            if named != "fail":
                self.set("failure_routes.DecodeError", "fail", fails)
        elif named != "dead-letter-queue" and fails is not None:
            why = (
                "a record that cannot be decoded never reaches a handler here, as null or otherwise"
            )
            self.notes.wrong(
                fails,
                f"not supported: {why}; use failure-strategy = dead-letter-queue, or leave it out",
            )
        retries = self.find("delayed-retry-topic.max-retries")
        if (
            retries is not None
            and self.said("delayed-retry-topic.max-retries", read.integer, 0) > 0
        ):
            self.set("delayed_retry.max_retries", read.integer(retries.text), retries)
        for part in ("key", "value"):
            self._check_letters(part)

    def _check_letters(self, part: str) -> None:
        """A serializer of dead letters: they keep their bytes, so it must be the deserializer's
        counterpart.
        """
        written = self.find(f"dead-letter-queue.{part}.serializer")
        reads = self.find(f"{part}.deserializer")
        if written is None:
            return
        counterpart = (
            reads.text.replace("Deserializer", "Serializer") if reads is not None else written.text
        )
        if written.text not in (
            counterpart,
            "org.apache.kafka.common.serialization.ByteArraySerializer",
        ):
            self.notes.wrong(written, "not supported: dead letters keep their bytes; leave it out")

    def _checkpoint(self) -> None:
        """The store of the strategy of that name."""
        kind = self.find("checkpoint.state-store")
        folder = self.find("checkpoint.file.state-dir")
        if self._strategy() != "checkpoint":
            for given in filter(None, (kind, folder)):
                self.notes.warn(given, "has no effect: it goes with commit-strategy = checkpoint")
            return
        strategy = self.find("commit-strategy")
        if kind is not None and kind.text != "file":
            store = 'store = "redis://host:6379/0", or "postgresql+asyncpg://user@host/database"'
            self.notes.wrong(
                kind,
                f"not supported: a bean of Java's; write {store} in [incoming.{self.name}.checkpoint]",
            )
        elif folder is not None:
            is_absolute = folder.text.startswith("/")
            problem = None if is_absolute else "expected a folder from the root: /var/lib/offsets"
            self.set("checkpoint.store", f"file://{quote(folder.text)}", folder, problem)
            why = "positions that SmallRye has stored in it are not read: without one of ours the group's count"
            self.notes.warn(folder, why)
        elif strategy is not None:
            why = "without checkpoint.file.state-dir SmallRye forgets every position at a restart; name a folder"
            self.notes.wrong(strategy, why)
