"""The service: a web application and an application of channels, on one event loop.

``uvicorn payments.service:web`` runs it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException

from payments.handlers import Payment, router
from payments.tracing import trace_to_stdout
from reactive_kafka import App, Message, TransientBrokerError

# uvicorn configures only its own loggers.
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("aiokafka").setLevel(logging.WARNING)
log = logging.getLogger(__name__)
app = App(Path(__file__).parents[1] / "reactive-kafka.toml")
app.include(router)
app.on_start(trace_to_stdout)
requests = app.emitter("requests")

web = FastAPI(lifespan=app.lifespan)
# /kafka/health/ready, /kafka/metrics.
web.mount("/kafka", app.asgi)


@app.middleware
async def audit(message: Message[Any], call_next: Callable[[Message[Any]], Awaitable[Any]]) -> Any:
    """One line for each payment that went through, with what support asks for."""
    result = await call_next(message)
    log.info("settled %s at attempt %d", message.payload.id, message.attempt)
    return result


@web.post("/payments", status_code=202)
async def pay(payment: Payment) -> dict[str, str]:
    """Answer when the broker has the payment: what the customer was told is not lost."""
    try:
        await requests.send(payment, key=payment.account)
    except TransientBrokerError as error:
        # The reason names brokers and topics: it is for the log, not for customers.
        log.warning("payment %s is not confirmed: %s", payment.id, error)
        raise HTTPException(503, "the payment is not confirmed; try again later") from error
    return {"payment": payment.id}
