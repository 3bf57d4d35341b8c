"""What must not type-check. Each line's error is expected; one that mypy accepts is an unused
ignore, and an error.
"""

from __future__ import annotations

from typing import Any

import reactive_kafka as rk
from reactive_kafka import App, Batch, Channel, Message, Record, SparkBatch, TopicPartition
from reactive_kafka.testing import TestApp


async def messages(message: Message[str], batch: Batch[str]) -> None:
    message.payload.customer  # type: ignore[attr-defined]  # noqa: B018
    message.ack(17)  # type: ignore[arg-type]
    message.nack("no stock")  # type: ignore[arg-type]
    # record= by name.
    message.nack(ValueError(), Record(b""))  # type: ignore[call-arg]
    message.offset = 17  # type: ignore[misc]
    text: str = await message.ack()  # type: ignore[assignment]
    numbers: list[int] = batch.payloads  # type: ignore[assignment]
    batch.ack_up_to(17)  # type: ignore[arg-type]
    batch[0] = message  # type: ignore[index]
    print(text, numbers)


def values() -> None:
    Record()  # type: ignore[call-arg]
    Record(b"", key=17)  # type: ignore[arg-type]
    Record(b"", headers={"tenant": b"x"})  # type: ignore[dict-item]
    Record(b"").value = 17  # type: ignore[misc]
    TopicPartition("orders", "0")  # type: ignore[arg-type]
    rk.Write(topic="dead", value="text", key=None)  # type: ignore[arg-type]


def decorators(app: App) -> None:
    @app.incoming("orders")
    async def handler(payload: str) -> None: ...

    handler(17)  # type: ignore[arg-type,unused-coroutine]
    # Without the channel's name.
    app.incoming(handler)  # type: ignore[arg-type]
    app.incoming("orders", retry="often")  # type: ignore[arg-type]
    # It is configuration.
    app.incoming("orders", group_id="billing")  # type: ignore[arg-type]
    app.incoming("orders", ack="maunal")  # type: ignore[arg-type]
    app.spark("clicks", corrupt="keep")  # type: ignore[arg-type]
    App(17)  # type: ignore[arg-type]
    # Async with.
    with app:  # type: ignore[attr-defined]
        pass


def hooks(app: App) -> None:
    def one(partitions: frozenset[TopicPartition]) -> None: ...
    def numbers(partitions: list[int]) -> None: ...
    def three(partitions: frozenset[TopicPartition], lost: bool, why: str) -> None: ...

    app.on_start("orders")  # type: ignore[type-var]
    app.middleware(one)  # type: ignore[type-var]
    app.observe(print)  # type: ignore[arg-type]
    app.on_start(one)  # type: ignore[type-var]
    app.before_stop(one)  # type: ignore[type-var]
    app.readiness("cache")(bool)  # type: ignore[type-var]
    app.readiness(one)  # type: ignore[arg-type]
    app.on_assigned("orders")(numbers)  # type: ignore[type-var]
    app.on_revoked("orders")(numbers)  # type: ignore[type-var]
    app.on_revoked("orders")(three)  # type: ignore[type-var]


async def channels(app: App, channel: Channel, test: TestApp) -> None:
    # Async for.
    for _ in channel:  # type: ignore[attr-defined]
        pass
    channel.in_flight = 17  # type: ignore[misc]
    channel.pause(partitions=["orders"])  # type: ignore[list-item]
    await channel.seek(TopicPartition("orders", 0), "newest")  # type: ignore[arg-type]
    await channel.commit({"orders": 17})  # type: ignore[dict-item]
    await test.send("orders", b"", key=17)  # type: ignore[arg-type]


def batches_of_spark(batch: SparkBatch) -> None:
    batch.reject([], 17)  # type: ignore[arg-type]
    batch.attempt = 2  # type: ignore[misc]


class Never:
    interval_s = 5.0
    commits_at_ack = False

    def position(self, progress: rk.Progress, now: float) -> str:
        return "never"


class Guess:
    def decide(self, failed: rk.FailedRecord) -> bool:
        return True


def what_users_plug_in() -> Any:
    commit: rk.CommitStrategy = Never()  # type: ignore[assignment]
    failure: rk.FailureStrategy = Guess()  # type: ignore[assignment]
    store: rk.CheckpointStore = Guess()  # type: ignore[assignment]
    return commit, failure, store


def what_waits() -> None:
    raise rk.Later("200s", scope="topic")  # type: ignore[arg-type]
