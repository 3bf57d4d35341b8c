"""What happens to a payment."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, PositiveInt

from payments.bank import Bank, bank
from reactive_kafka import Depends, Record, Router

router = Router()


class Payment(BaseModel):
    id: str
    account: str
    cents: PositiveInt


class Receipt(BaseModel):
    payment: str
    transfer: str


@router.incoming("payments")
@router.outgoing("receipts")
async def settle(payment: Payment, bank: Annotated[Bank, Depends(bank, scope="app")]) -> Record:
    """Charge the account. A payment that comes again after a crash is charged once: the bank knows
    its id.
    """
    transfer = await bank.charge(payment.account, payment.cents, once=payment.id)
    return Record(Receipt(payment=payment.id, transfer=transfer), key=payment.account)
