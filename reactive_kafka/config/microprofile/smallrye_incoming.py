"""The rules of incoming channels of SmallRye's: topics, parallelism, failures, store. Pure."""

from __future__ import annotations

from urllib.parse import quote

from reactive_kafka.config.microprofile import converters as read
from reactive_kafka.config.microprofile.smallrye_channel import SmallRyeChannel


class SmallRyeIncoming(SmallRyeChannel):
    """An incoming channel of SmallRye's."""

    side = "incoming"

    def read_rules(self) -> None:
        """Note what several attributes say together."""
        self._what_is_read()
        self._group()
        if not self.convert("key.deserializer", "key_deserializer", read.java_format):
            self.set("key_deserializer", "string", None)
        self._parallelism()
        self._poison_age()
        self._failures()
        self._checkpoint()
        if not self.parsed("graceful-shutdown", read.boolean, True):
            self.set("drain_timeout", "0s", self.find("graceful-shutdown"))
        if not self.parsed("cloud-events", read.boolean, True):
            self.set("cloud_events", False, self.find("cloud-events"))
        for name in ("pausable", "health-topic-verification-enabled", "specific.avro.reader"):
            self.parsed(name, read.boolean, False)

    def _what_is_read(self) -> None:
        """Set what the channel reads: partitions, a pattern, or topics."""
        topic = self.find("topic")
        assigned = self.find("assign-seek")
        named = topic.text if topic is not None else self.name
        if assigned is not None:
            try:
                self.set("assign", read.assigned(assigned.text, named), assigned)
            except ValueError as error:
                self.set("assign", assigned.text, assigned, str(error))
        elif self.parsed("pattern", read.boolean, False):
            self.set("pattern", named, topic or self.find("pattern"))
        elif topic is not None:
            self.set("topic", named, topic)
        if assigned is None:
            self.convert("topics", "topics", read.names)

    def _group(self) -> None:
        """Set the group. Without one it is the application's name, else a new one at each start."""
        if self.convert("group.id", "group_id", read.text):
            return
        application = self.values.find("quarkus.application.name")
        if application is not None:
            self.set("group_id", application.text, application)
            return
        self.set("group_id", f"{self.name}-{self.values.new_id}", None)
        self.notes.warn_at(
            self.origin,
            f"mp.messaging.incoming.{self.name}",
            "set group.id or quarkus.application.name: without them the group is a new one at each "
            "start, as SmallRye has it, so reading does not continue where it stopped",
        )

    def _parallelism(self) -> None:
        """Set consumers, handlers at once, their order, and how many records may wait."""
        is_batch = self.parsed("batch", read.boolean, False)
        ordered = self.find("ordered")
        copies = self.parsed("concurrency", read.integer, 1)
        merged = self.parsed("partitions", read.integer, 1)
        by_copies = copies > 1 or merged <= 1
        consumers = self.find("concurrency" if by_copies else "partitions")
        if max(copies, merged) > 1 or consumers is not None:
            self.set("consumers", copies if by_copies else merged, consumers)
        polled = self.parsed("max.poll.records", read.integer, 500)
        handlers = copies
        if ordered is not None:
            if is_batch:
                self.notes.wrong(ordered, "batches are not ordered: leave out batch, or ordered")
            self.convert("ordered", "ordering", read.order)
            handlers *= self.parsed("ordered.max-concurrency", read.integer, polled)
            self.set("concurrency", handlers, self.find("ordered.max-concurrency"))
        else:
            # In SmallRye each copy of a channel calls its method one record after the other, so the
            # records of a partition stay in order.
            keeps_order = copies > 1 or self._strategy() == "checkpoint"
            self.set("ordering", "partition" if keeps_order else "unordered", None)
            if copies > 1:
                self.set("concurrency", copies, self.find("concurrency"))
            limit = self.find("ordered.max-concurrency")
            if limit is not None:
                self.notes.warn(
                    limit, "has no effect without ordered: records are handled one after the other"
                )
        if is_batch:
            self.set(
                "batch_max_records", polled, self.find("max.poll.records") or self.find("batch")
            )
            self.set("batch_max_wait", "0s", self.find("batch"))
        factor = self.find("max-queue-size-factor")
        if factor is not None or self.find("max.poll.records") is not None:
            queue_factor = self.parsed("max-queue-size-factor", read.integer, 2)
            queued = queue_factor * polled * max(copies, merged)
            given = factor or self.find("max.poll.records")
            self.set("max_in_flight", max(queued, handlers), given)

    def _strategy(self) -> str:
        given = self.find("commit-strategy")
        if given is not None:
            return given.text
        return "ignore" if self.parsed("enable.auto.commit", read.boolean, False) else "throttled"

    def _poison_age(self) -> None:
        """Turn off the watch for stuck records for strategies that have none in SmallRye.

        There only the throttled strategy has the watch. Here every strategy has it.
        """
        name = "throttled.unprocessed-record-max-age.ms"
        if self._strategy() in ("latest", "checkpoint") and self.find(name) is None:
            self.set("unprocessed_record_max_age", "0s", None)

    def _failures(self) -> None:
        """Set what happens to records that cannot be decoded, and the tables of failures."""
        strategy = self.find("failure-strategy")
        fails = self.find("fail-on-deserialization-failure")
        named = strategy.text if strategy is not None else "fail"
        if self.parsed("fail-on-deserialization-failure", read.boolean, True):
            if named != "fail":
                self.set("failure_routes.DecodeError", "fail", fails)
        elif named != "dead-letter-queue" and fails is not None:
            self.notes.wrong(
                fails,
                "not supported: use failure-strategy = dead-letter-queue, or leave it out; a "
                "record that cannot be decoded never reaches a handler here, not even as null",
            )
        retries = self.find("delayed-retry-topic.max-retries")
        count = self.parsed("delayed-retry-topic.max-retries", read.integer, 0)
        if retries is not None and count > 0:
            self.set("delayed_retry.max_retries", count, retries)
        for part in ("key", "value"):
            self._check_letters(part)

    def _check_letters(self, part: str) -> None:
        """Refuse a serializer that would change the bytes of a dead letter.

        Dead letters keep their bytes here. The deserializer's counterpart would write the same.
        """
        serializer = self.find(f"dead-letter-queue.{part}.serializer")
        deserializer = self.find(f"{part}.deserializer")
        if serializer is None or deserializer is None:
            return
        allowed = (
            deserializer.text.replace("Deserializer", "Serializer"),
            "org.apache.kafka.common.serialization.ByteArraySerializer",
        )
        if serializer.text not in allowed:
            self.notes.wrong(
                serializer, "not supported: leave it out; dead letters keep their bytes"
            )

    def _checkpoint(self) -> None:
        """Set the store, for the strategy ``checkpoint``."""
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
                f"not supported: a bean of Java's; write {store} in "
                f"[incoming.{self.name}.checkpoint]",
            )
        elif folder is not None:
            is_absolute = folder.text.startswith("/")
            problem = None if is_absolute else "expected an absolute folder: /var/lib/offsets"
            self.set("checkpoint.store", f"file://{quote(folder.text)}", folder, problem)
            self.notes.warn(
                folder,
                "positions that SmallRye stored in it are not read: until we have stored one, the "
                "position of the group counts",
            )
        elif strategy is not None:
            self.notes.wrong(
                strategy,
                "name a folder with checkpoint.file.state-dir: without one SmallRye forgets every "
                "position at a restart",
            )
