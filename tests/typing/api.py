"""What users write, and the types that they get. Checked by mypy, never run: a name here need not
make sense.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, assert_type

import reactive_kafka as rk
from reactive_kafka import (
    App,
    Batch,
    Channel,
    Headers,
    Message,
    Record,
    SparkBatch,
    SparkRange,
    TopicPartition,
)
from reactive_kafka.checkpoint.store import Write as CheckpointWrite
from reactive_kafka.events import Event
from reactive_kafka.failure import Decision
from reactive_kafka.handlers.declared import Declared


@dataclass
class Order:
    id: int
    customer: str


@dataclass
class Invoice:
    order: int


assert_type(rk.current_message(), Message[Any] | None)
assert_type(rk.current_batch(), Batch[Any] | None)
assert_type(rk.Later("200s", scope="partition").delay_s, float)
assert_type(rk.Later(timedelta(minutes=1)).scope, Literal["record", "partition", "channel"])


class Watch:
    def on(self, event: rk.Event) -> None:
        if isinstance(event, rk.events.RecordDeadLettered):
            assert_type(event.error, BaseException | None)
            assert_type(
                (event.offset, event.to, event.loudness()),
                tuple[int, str, Literal["info", "warning", "error"]],
            )


observer: rk.Observer = Watch()
app_that_tells = App(observer=observer)
app_that_tells.observe(Watch())


EventNames = tuple[str, str, str, str | None, datetime | None]
rk.CloudEvent(
    {"id": 1}, type="order", source="/shop", time=datetime.now(UTC), extensions={"tenant": "a"}
)

App()
App("reactive-kafka.toml")
App(Path("reactive-kafka.toml"))
app = App({"incoming": {"orders": {"group_id": "billing"}}})


@app.incoming("orders")
@app.outgoing("invoices")
async def invoice(order: Order) -> Invoice:
    return Invoice(order.id)


async def pool() -> AsyncIterator[str]:
    yield "pool"


Pool = Annotated[str, rk.Depends(pool, scope="app")]


async def session(pool: Pool, message: Message[Any]) -> int:
    return message.offset


@app.incoming("orders")
async def with_dependencies(
    order: Order, pool: Pool, session: Annotated[int, rk.Depends(session)]
) -> None:
    assert_type(session, int)


async def no_pool() -> str:
    return ""


app.dependency_overrides[pool] = no_pool


async def within_a_web_application(web: object) -> None:
    async with app.lifespan(web):
        pass


router = rk.Router()
app.include(router)
assert_type(app.declared, Declared)


@router.middleware
@app.middleware
async def around_calls(message: Message[Any] | Batch[Any], call_next: rk.CallNext) -> Any:
    return await call_next(message)


@app.send_middleware
async def around_sends(record: Record, call_next: rk.CallNext) -> Any:
    return await call_next(record)


@router.incoming("orders", retry={"max_attempts": 2, "never": ["ValueError"]})
@router.outgoing("invoices")
async def of_a_router(order: Order) -> Invoice:
    return Invoice(order.id)


@app.incoming("orders", ack="manual", retry=3)
async def by_hand(message: Message[Order]) -> None:
    assert_type(message.payload, Order)
    assert_type(message.topic, str)
    assert_type(message.partition, int)
    assert_type(message.topic_partition, TopicPartition)
    assert_type(message.offset, int)
    # What key_deserializer makes of it.
    assert_type(message.key, Any)
    assert_type(message.headers, Headers)
    assert_type(message.cloud_event, rk.CloudEvent | None)
    if (event := message.cloud_event) is not None:
        assert_type((event.id, event.source, event.type, event.subject, event.time), EventNames)
    assert_type(message.timestamp, datetime | None)
    assert_type(message.channel, str)
    assert_type(message.attempt, int)
    assert_type(message.record.value, bytes | None)
    assert_type(message.ack(), Future[bool])
    assert_type(await message.ack(metadata="sum=3"), bool)
    assert_type(message.nack(ValueError("no stock")), Future[bool])
    assert_type(await message.nack(ValueError(), record=Record(b"instead")), bool)
    assert_type(message.retry_later("10m"), Future[bool])
    assert_type(await message.retry_later(600), bool)
    assert_type(message.retry_later(timedelta(minutes=10)), Future[bool])
    assert_type(message.committed(), Future[None])


@app.incoming("orders", retry={"max_attempts": 3, "backoff": "200ms"})
async def in_batches(batch: Batch[Order]) -> None:
    assert_type(batch.payloads, list[Order])
    assert_type(batch[0], Message[Order])
    assert_type(batch[1:], tuple[Message[Order], ...])
    assert_type(len(batch), int)
    assert_type([message.payload for message in batch], list[Order])
    assert_type(batch.ack(), Future[bool])
    assert_type(batch.nack(ValueError()), Future[bool])
    assert_type(batch.ack_up_to(batch[0]), Future[bool])
    async with batch.transaction() as connection:
        assert_type(connection, Any)
    as_sequence: Sequence[Message[Order]] = batch
    print(as_sequence)


@app.incoming("sums")
async def stored(message: Message[Order]) -> None:
    assert_type(message.checkpoint.get(), Any)
    message.checkpoint.set({"sum": 3})
    assert_type(message.transaction(), AbstractAsyncContextManager[Any])


@app.incoming("reports")
def in_a_thread(report: dict[str, int]) -> None: ...


@app.incoming("orders")
@app.outgoing("ticks")
async def many(message: Message[Order]) -> AsyncIterator[Record]:
    yield Record({"tick": 1}, key="a", headers=[("tenant", b"x")], timestamp=datetime.now(UTC))
    yield Record("seen", headers=message.headers, origin=message)
    yield Record(None, b"a", partition=0, topic="ticks", channel="ticks")


@app.spark("clicks", payload=Order, corrupt="show")
def hourly(df: Any, batch: SparkBatch) -> None:
    assert_type(batch.id, str)
    assert_type(batch.ranges, tuple[SparkRange, ...])
    assert_type(batch.ranges[0].topic, str)
    assert_type(batch.ranges[0].partition, int)
    assert_type(batch.ranges[0].start, int)
    assert_type(batch.ranges[0].until, int)
    assert_type(batch.ranges[0].id, str)
    assert_type(batch.attempt, int)
    assert_type(batch.supersedes, tuple[str, ...])
    batch.spark.sql("SELECT 1")
    batch.reject([("clicks", 0, 17)], "no user")
    batch.reject(df.where("user IS NULL"), ValueError("no user"))
    batch.send(df.selectExpr("key", "value"), "totals")
    batch.with_range_id(df).write.save()


@app.every("1m", on="orders:0")
def clean_up() -> None: ...


@app.cron("0 3 * * *", tz="Europe/Berlin")
async def report() -> None: ...


@app.on_start
async def connect() -> None: ...


@app.before_stop
def flush() -> None: ...


@app.readiness("schemas")
async def schemas() -> str | None:
    return "not loaded"


@app.readiness("cache")
def cache() -> str | None:
    return None


@app.on_assigned("orders")
async def assigned(partitions: frozenset[TopicPartition]) -> None: ...


@app.on_caught_up("orders")
async def caught_up(partitions: frozenset[TopicPartition]) -> None: ...


@app.on_revoked("orders")
def revoked(partitions: frozenset[TopicPartition]) -> None: ...


@app.on_revoked("orders")
async def revoked_or_lost(partitions: frozenset[TopicPartition], lost: bool) -> None: ...


async def decorated_functions_keep_their_types() -> None:
    as_handler: Callable[[Order], Coroutine[Any, Any, Invoice]] = invoice
    assert_type(await invoice(Order(1, "a")), Invoice)
    records: Callable[[Message[Order]], AsyncIterator[Record]] = many
    assert_type(await connect(), None)
    hook: Callable[[], None] = flush
    print(as_handler, records, hook)


async def an_application() -> None:
    async with app as running:
        assert_type(running, App)
    assert_type(await app.start(), None)
    assert_type(await app.stop(drain=False), None)
    assert_type(app.run(exit_on_failure=True), None)
    assert_type(app.configure(Path("other.toml"), {"http": {"enabled": False}}), rk.Settings)
    assert_type(app.settings, rk.Settings)
    assert_type(app.settings.incoming["orders"], rk.IncomingSettings)
    assert_type(app.channel("orders"), Channel)
    assert_type(
        await app.add_channel("audit", {"topic": "orders"}, invoice, outgoing="invoices", retry=3),
        Channel,
    )
    assert_type(await app.offsets("billing").positions(), dict[TopicPartition, int])
    assert_type(await app.offsets("billing").metadata(("orders", 0)), Any)
    assert_type(app.facts().started, bool)
    assert_type(len(app.spark_facts()), int)
    assert_type(app.identity().host, str)
    assert_type([handled.has_handler for handled in app.plan.incoming.values()], list[bool])
    assert_type(app.health(), rk.Health)
    assert_type(app.registry.get_sample_value("reactive_kafka_up"), float | None)
    assert_type(app.http.url if app.http is not None else None, str | None)
    print(app.asgi.routes)


async def in_a_transaction(emitter: rk.Emitter) -> None:
    assert_type(emitter.transaction(), rk.EmitterTransaction)
    async with emitter.transaction() as tx:
        assert_type(tx, rk.EmitterTransaction)
        await tx.send(Order(1, "Ada"), key=b"k", headers=[("a", b"1")])
        await tx.send(rk.Record("x", partition=1))


async def emitting(emitter: rk.Emitter) -> rk.RecordMetadata:
    assert_type(app.emitter("invoices"), rk.Emitter)
    try:
        sending = emitter.send_nowait(Order(1, "Ada"), key=b"k", headers=[("a", b"1"), ("b", None)])
    except rk.BufferFullError:
        return await emitter.send(rk.Record(Order(1, "Ada")))
    assert_type(sending, rk.Sending)
    assert_type(await sending, rk.RecordMetadata)
    assert_type(sending.result(1.0), rk.RecordMetadata)
    assert_type((await sending).offset, int)
    await emitter.flush()
    try:
        assert_type(
            await emitter.request(
                "x", timeout="2s", key="k", headers=[("a", b"1")], reply_type=Order
            ),
            Order,
        )
        assert_type(await emitter.request(rk.Record("x"), timeout=0.5), Any)
    except rk.ReplyTimeoutError as late:
        late_too: TimeoutError = late
        print(late_too)
    return await emitter.send("x", topic="elsewhere", partition=1, timestamp=datetime.now(UTC))


class Counting:
    """Is told every event."""

    def on(self, event: Event) -> None: ...


App(observer=Counting())
app.observe(Counting())


def health(state: rk.Health) -> None:
    assert_type(state.status, Literal["UP", "DOWN"])
    assert_type(state.live.is_up, bool)
    assert_type(
        [state.live.status, state.ready.status, state.started.status], list[Literal["UP", "DOWN"]]
    )
    assert_type(state.overall.checks[0].name, str)
    assert_type(state.checks[0].data, Mapping[str, Any])
    assert_type(state.to_json(), dict[str, Any])


async def a_channel(channel: Channel) -> None:
    partition = TopicPartition("orders", 0)
    async for message in channel:
        assert_type(message, Message[Any])
        assert_type(channel.ack_up_to(message, metadata="sum=3"), Future[bool])
    assert_type(channel.name, str)
    state: str = channel.facts().state
    assert_type(
        [channel.is_started, channel.is_ready, channel.is_stopped, channel.paused], list[bool]
    )
    assert_type(await channel.stop(), None)
    assert_type(await channel.start(), None)
    assert_type(await channel.restart(), None)
    channel.pause()
    channel.pause("a service is away", partitions=[partition, ("orders", 1)])
    channel.resume("a service is away", partitions={partition})
    await channel.seek(partition, 17)
    await channel.seek(("orders", 0), "beginning")
    await channel.seek(partition, datetime.now(UTC))
    await channel.seek(partition, rk.by(-100))
    skipped: str = channel.skip(partition, 17)
    await channel.commit()
    await channel.commit({partition: 17})
    assert_type(await channel.committed(), dict[TopicPartition, int | None])
    assert_type(await channel.lag(), dict[TopicPartition, int])
    await channel.handled(rk.RecordMetadata("orders", 0, 17), timeout=5)
    assert_type(channel.store_offset_metadata(("orders", 0), "sum=3"), bool)
    assert_type(await channel.offset_metadata(partition), Any)
    assert_type(channel.assignment, frozenset[TopicPartition])
    assert_type(channel.in_flight, int)
    print(state, skipped)


def values(headers: Headers, partition: TopicPartition, committed: rk.Committed) -> None:
    assert_type(headers.get("tenant"), bytes | None)
    assert_type(headers.get_all("tenant"), list[bytes | None])
    assert_type(headers[0], tuple[str, bytes | None])
    assert_type(dict(headers), dict[str, bytes | None])
    topic, number = partition
    assert_type((topic, number), tuple[str, int])
    assert_type(committed.offset, int)
    assert_type(committed.metadata, str)


class EveryHundred:
    """A custom commit strategy."""

    interval_s = None
    commits_at_ack = True

    def position(self, progress: rk.Progress, now: float) -> int | None:
        assert_type(progress.partition, TopicPartition)
        assert_type(progress.committed, int | None)
        assert_type(progress.is_last, bool)
        return progress.safe if progress.safe % 100 == 0 else min(progress.highest, progress.safe)


class Sorting:
    """A custom failure strategy."""

    def decide(self, failed: rk.FailedRecord) -> Decision:
        if isinstance(failed.reason, rk.DecodeError):
            return rk.Skip()
        if failed.value is None:
            return rk.Stop(rk.FatalBrokerError("no value"))
        return rk.Write(topic=f"dead-{failed.partition.topic}", value=failed.value, key=failed.key)


class SortingLater:
    """One that has to wait for its decision."""

    async def decide(self, failed: rk.FailedRecord) -> Decision:
        return rk.Skip()


class Rows:
    """A checkpoint store of one's own."""

    async def read(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, rk.Checkpoint]:
        return {
            partition: rk.Checkpoint(token=1, position=17, state=None, metadata="")
            for partition in partitions
        }

    async def write(
        self, group: str, writes: Mapping[TopicPartition, CheckpointWrite]
    ) -> frozenset[TopicPartition]:
        return frozenset(
            partition
            for partition, write in writes.items()
            if write.expected != write.checkpoint.token
        )

    async def close(self) -> None: ...


class Rollback:
    async def __aenter__(self) -> None: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class TransactionalRows(Rows):
    def transaction(self, group: str, writes: Mapping[TopicPartition, CheckpointWrite]) -> Rollback:
        return Rollback()


def what_users_plug_in() -> Iterator[object]:
    commit: rk.CommitStrategy = EveryHundred()
    failures: list[rk.FailureStrategy] = [Sorting(), SortingLater()]
    store: rk.CheckpointStore = Rows()
    with_transactions: rk.TransactionalStore = TransactionalRows()
    yield from (commit, failures, store, with_transactions)


def errors(error: Exception) -> None:
    if isinstance(error, rk.ConfigError):
        assert_type(error.problems, tuple[str, ...])
    if isinstance(error, rk.MissingExtraError):
        assert_type(error.extra, str)
    if isinstance(error, rk.HandlerError):
        assert_type((error.channel, error.partition, error.offset), tuple[str, TopicPartition, int])
    ours: tuple[type[rk.ReactiveKafkaError], ...] = (
        rk.BrokerError,
        rk.ChannelClosedError,
        rk.CheckpointError,
        rk.CommitRefusedError,
        rk.OffloadError,
        rk.PoisonError,
        rk.SkipRefusedError,
        rk.UnmatchedRecordError,
    )
    of_the_broker: tuple[type[rk.BrokerError], ...] = (
        rk.FatalBrokerError,
        rk.NotOwnerError,
        rk.RejectedRecordError,
        rk.TransientBrokerError,
    )
    passing: tuple[type[rk.TransientBrokerError], ...] = (
        rk.SchemaAwayError,
        rk.StoreAwayError,
        rk.OutcomeUnknownError,
        rk.TransactionAbortedError,
    )
    of_a_value: tuple[type[ValueError], ...] = (rk.ConfigError, rk.DecodeError, rk.EncodeError)
    print(ours, of_the_broker, passing, of_a_value)
