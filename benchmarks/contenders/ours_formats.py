"""reactive_kafka with handlers of decoded orders, as a user runs it; msgspec is installed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from benchmarks.contenders.meter import Job, Meter, Result
from benchmarks.contenders.ours import make_app
from benchmarks.orders import OrderModel


@dataclass
class OrderData:
    """As a dataclass."""

    id: int
    customer: str
    item: str
    quantity: int
    price: float
    paid: bool
    note: str | None = None


class OrderStruct(msgspec.Struct):
    """As a struct."""

    id: int
    customer: str
    item: str
    quantity: int
    price: float
    paid: bool
    note: str | None = None


async def _decoded(deserializer: str, kind: Any, job: Job) -> Result:
    """A handler that takes the payload as *kind* and does nothing."""
    meter = Meter(job.records)
    registry = {"schema_registry": {"url": job.registry}} if job.registry else {}
    app = make_app(job, tables=registry, value_deserializer=deserializer)
    seen = 0
    mark = 1

    async def handle(order: Any) -> None:
        nonlocal seen, mark
        seen += 1
        if seen == mark:
            mark = meter.reached(seen)

    handle.__annotations__["order"] = kind
    app.incoming("bench")(handle)
    async with app:
        await meter.wait()
    return meter.result()


json_dict, json_dataclass, json_pydantic, json_struct = (
    partial(_decoded, "json", kind) for kind in (dict, OrderData, OrderModel, OrderStruct)
)
avro_dict, avro_dataclass = (partial(_decoded, "avro", kind) for kind in (dict, OrderData))
