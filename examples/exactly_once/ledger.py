"""Payments in, two bookings each out: both or none, and never twice. See README.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reactive_kafka import App, Record

app = App(Path(__file__).with_name("reactive-kafka.toml"))
salaries = app.emitter("salaries")


@dataclass
class Payment:
    payer: str
    payee: str
    cents: int


@app.incoming("payments")
@app.outgoing("bookings")
async def book(payment: Payment) -> list[Record]:
    """What the payer loses and the payee gets. Both bookings and the payment's position are one
    transaction.
    """
    if payment.cents <= 0:
        raise ValueError(f"{payment.cents} cents cannot be paid")
    return [Record(-payment.cents, key=payment.payer), Record(payment.cents, key=payment.payee)]


async def pay_salaries(due: Mapping[str, int]) -> None:
    """Send the payments of a month: all of them, or none."""
    async with salaries.transaction() as month:
        for employee, cents in due.items():
            await month.send(Payment("company", employee, cents), key=employee)


if __name__ == "__main__":
    app.run()
