"""A small web shop's consumers: orders, payments, and clicks that Spark counts.

The channels are in reactive-kafka.toml. Without PySpark a plain handler counts the clicks.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from reactive_kafka import App, Batch, Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reactive_kafka import SparkBatch

app = App(Path(__file__).with_name("reactive-kafka.toml"))


@dataclass
class Order:
    id: int
    customer: str
    amount: float


@dataclass
class Click:
    id: int
    page: str


@dataclass
class Payment:
    id: int
    amount: float
    needs_approval: bool = False


# Order -> how often it was handled.
shipped: Counter[int] = Counter()
# Payment -> how often it was handled.
booked: Counter[int] = Counter()
waiting_for_approval: list[Message[Payment]] = []
# Batch -> page -> clicks.
clicks_by_batch: dict[str, dict[str, int]] = {}


@app.incoming("orders")
async def ship(order: Order) -> None:
    """Takes 5 to 250 ms, so orders finish in another order than they came in."""
    await asyncio.sleep(random.uniform(0.005, 0.25))
    shipped[order.id] += 1


@app.incoming("payments")
async def book(message: Message[Payment]) -> None:
    """Most payments are booked at once. One that needs approval stays unsettled until it has it."""
    if message.payload.needs_approval:
        waiting_for_approval.append(message)
        return
    booked[message.payload.id] += 1
    message.ack()


def approve() -> int:
    """Book what waits for approval; how many there were."""
    count = len(waiting_for_approval)
    while waiting_for_approval:
        message = waiting_for_approval.pop()
        booked[message.payload.id] += 1
        message.ack()
    return count


def count_with_spark(df: DataFrame, batch: SparkBatch) -> None:
    """Counts clicks by page. A batch that runs again has the same id, so it replaces its first
    result.
    """
    pages = (
        df.selectExpr("get_json_object(CAST(value AS STRING), '$.page') AS page")
        .groupBy("page")
        .count()
    )
    clicks_by_batch[batch.id] = {row["page"]: row["count"] for row in pages.collect()}


async def count_without_spark(batch: Batch[Click]) -> None:
    """Counts clicks by page. The first record of the batch names the batch."""
    first = batch[0]
    name = f"{first.partition}-{first.offset}"
    clicks_by_batch[name] = Counter(click.page for click in batch.payloads)


has_spark = find_spec("pyspark") is not None
if has_spark:
    app.spark("clicks")(count_with_spark)
else:
    app.incoming("clicks")(count_without_spark)


if __name__ == "__main__":
    app.run()
