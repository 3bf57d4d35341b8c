"""The orders that contenders decode: as JSON, and as Avro with its schema in a registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

FIELDS = {
    "id": "long",
    "customer": "string",
    "item": "string",
    "quantity": "int",
    "price": "double",
    "paid": "boolean",
    "note": ["null", "string"],
}
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()],
    }
)


class OrderModel(BaseModel):
    """As a pydantic model, for ours and for FastStream's."""

    id: int
    customer: str
    item: str
    quantity: int
    price: float
    paid: bool
    note: str | None = None


def order(number: int) -> dict[str, Any]:
    """The order of that number."""
    return {
        "id": number,
        "customer": "Ada Lovelace",
        "item": "keyboard",
        "quantity": 3,
        "price": 49.9,
        "paid": True,
        "note": None,
    }


def as_json(number: int) -> bytes:
    """About 120 bytes, as Python writes them."""
    return _JSON % number


_JSON = json.dumps(order(0)).encode().replace(b'"id": 0', b'"id": %d')


def as_avro(schema_id: int) -> Callable[[int], bytes]:
    """What makes the value of an order, as Confluent's serialiser writes it."""
    import fastavro

    schema = fastavro.parse_schema(json.loads(SCHEMA))
    head = b"\0" + schema_id.to_bytes(4, "big")

    def value(number: int) -> bytes:
        out = io.BytesIO(head)
        out.seek(len(head))
        fastavro.schemaless_writer(out, schema, order(number))
        return out.getvalue()

    return value
