"""What happens to orders and invoices."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

from sqlalchemy import text

from bookshop.bank import Bank, bank
from bookshop.records import Invoice, Order
from reactive_kafka import Depends, Message, Record, Router, SparkBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TABLE = text(
    "CREATE TABLE IF NOT EXISTS invoices"
    " (order_id TEXT PRIMARY KEY, customer TEXT, title TEXT, cents INTEGER)"
)
INSERT = text("INSERT INTO invoices VALUES (:order, :customer, :title, :cents)")

router = Router()
sales_by_batch: dict[str, dict[str, int]] = {}
"""Batch -> title -> cents. A batch that runs again replaces its first result."""


@router.incoming("orders")
@router.outgoing("invoices")
async def charge(order: Order, bank: Annotated[Bank, Depends(bank, scope="app")]) -> Record:
    """Charge the customer, and send the invoice."""
    transfer = await bank.charge(order.id, order.customer, order.cents)
    invoice = Invoice(
        order=order.id,
        customer=order.customer,
        title=order.title,
        cents=order.cents,
        transfer=transfer,
    )
    return Record(invoice, key=order.customer)


@router.incoming("archive")
async def archive(invoice: Message[Invoice]) -> None:
    """Keep the invoice in the database."""
    async with invoice.transaction() as connection:
        await connection.execute(TABLE)
        await connection.execute(INSERT, invoice.payload.model_dump(exclude={"transfer"}))


@router.spark("sales", payload=Invoice)
def add_up(invoices: DataFrame, batch: SparkBatch) -> None:
    """Add up what each book has brought in."""
    totals = invoices.groupBy("title").sum("cents").collect()
    sales_by_batch[batch.id] = {row["title"]: row["sum(cents)"] for row in totals}


def sales() -> dict[str, int]:
    """Title -> cents, of all batches."""
    total = Counter[str]()
    for by_title in sales_by_batch.values():
        total.update(by_title)
    return dict(total.most_common())
