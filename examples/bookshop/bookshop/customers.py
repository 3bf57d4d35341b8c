"""Invented customers. They order some books a second, and one of them writes nonsense."""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections.abc import AsyncIterator

from bookshop.records import Order
from reactive_kafka import Record, Router

BOOKS = {
    "Emma": 999,
    "Ulysses": 1499,
    "Middlemarch": 1299,
    "The Waves": 899,
    "Walden": 799,
}
CUSTOMERS = ("ada", "grace", "alan", "edsger", "barbara", "donald", "frances", "ken")
PER_SECOND = float(os.environ.get("BOOKSHOP_ORDERS_PER_SECOND", "20"))

router = Router()


@router.outgoing("customers")
async def orders() -> AsyncIterator[Record]:
    """Order books for as long as the shop is open."""
    while PER_SECOND:
        await asyncio.sleep(random.expovariate(PER_SECOND))
        title, cents = random.choice(list(BOOKS.items()))
        customer = random.choice(CUSTOMERS) if random.random() < 0.98 else "broke-bob"
        if random.random() < 0.02:
            yield Record(b"one book please", key=customer)
        else:
            order = Order(id=str(uuid.uuid4()), customer=customer, title=title, cents=cents)
            yield Record(order, key=customer)
