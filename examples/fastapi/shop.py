"""A web application that sends: reactive_kafka is FastAPI's lifespan, which serves its health and
metrics.
"""

from __future__ import annotations

import logging
from pathlib import Path

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from reactive_kafka import App, BufferFullError, TransientBrokerError

# uvicorn configures only its own loggers.
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("aiokafka").setLevel(logging.WARNING)
log = logging.getLogger(__name__)
app = App(Path(__file__).with_name("reactive-kafka.toml"))
orders = app.emitter("orders")
clicks = app.emitter("clicks")
shipped: list[int] = []


class Order(BaseModel):
    id: int
    customer: str


@app.incoming("shipping")
async def ship(order: Order) -> None:
    shipped.append(order.id)
    log.info("order %d goes to %s", order.id, order.customer)


web = FastAPI(lifespan=app.lifespan)
# /kafka/health/ready, /kafka/metrics.
web.mount("/kafka", app.asgi)


@web.post("/orders", status_code=201)
async def order(order: Order) -> dict[str, int]:
    """Answer when the broker has the order: what the customer was told is not lost."""
    try:
        stored = await orders.send(order, key=order.customer)
    except TransientBrokerError as error:
        # The reason names brokers and topics: it is for the log, not for customers.
        log.warning("an order is not confirmed: %s", error)
        raise HTTPException(503, "the order is not confirmed; try again later") from error
    return {"partition": stored.partition, "offset": stored.offset}


@web.post("/clicks/{page}", status_code=202)
async def click(page: str) -> None:
    """Answer at once; refuse when the broker cannot keep up."""
    try:
        clicks.send_nowait({"page": page})
    except BufferFullError as error:
        log.warning("a click is refused: %s", error)
        raise HTTPException(503, "too many clicks; try again later") from error
