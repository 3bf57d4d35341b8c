"""A small web shop's consumers: orders, payments, and clicks that Spark counts. The channels:
reactive-kafka.toml.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reactive_kafka import App, Message

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
    """Most payments are booked at once; one that needs approval stays unsettled until somebody
    gives it.
    """
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


@app.spark("clicks")
def count_clicks(df: DataFrame, batch: SparkBatch) -> None:
    """Counts clicks by page. A batch that runs again has the same id, so it replaces its first
    result.
    """
    pages = (
        df.selectExpr("get_json_object(CAST(value AS STRING), '$.page') AS page")
        .groupBy("page")
        .count()
    )
    clicks_by_batch[batch.id] = {row["page"]: row["count"] for row in pages.collect()}


if __name__ == "__main__":
    app.run()
