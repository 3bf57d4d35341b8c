"""What is written to the topics."""

from __future__ import annotations

from pydantic import BaseModel, PositiveInt


class Order(BaseModel):
    id: str
    customer: str
    title: str
    cents: PositiveInt


class Invoice(BaseModel):
    order: str
    customer: str
    title: str
    cents: PositiveInt
    transfer: str
