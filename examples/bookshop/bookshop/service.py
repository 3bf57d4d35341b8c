"""The service: channels and a dashboard in one process, on one event loop."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from bookshop import customers, handlers
from bookshop.records import Order
from reactive_kafka import App, TransientBrokerError

log = logging.getLogger(__name__)
app = App(Path(__file__).parents[1] / "reactive-kafka.toml")
app.include(handlers.router)
app.include(customers.router)
website = app.emitter("website")
PAGE = Path(__file__).with_name("dashboard.html").read_text()


async def dashboard(_: Request) -> Response:
    """The page, which asks for /figures once a second."""
    return HTMLResponse(PAGE)


async def figures(_: Request) -> Response:
    """What the page shows: readiness with its reasons, and the sales that Spark has added up."""
    ready = app.health().ready
    reasons = [check.data.get("reason") for check in ready.checks if check.status == "DOWN"]
    return JSONResponse({"ready": ready.is_up, "reasons": reasons, "sales": handlers.sales()})


async def order(request: Request) -> Response:
    """Take an order: answer when the broker has it, so that no confirmed order is lost."""
    try:
        placed = Order(**{**await request.json(), "id": str(uuid.uuid4())})
    except (ValidationError, ValueError, TypeError) as error:
        return JSONResponse({"error": str(error)}, status_code=422)
    try:
        await website.send(placed, key=placed.customer)
    except TransientBrokerError as error:
        # The reason names brokers and topics: it is for the log, not for customers.
        log.warning("order %s is not confirmed: %s", placed.id, error)
        return JSONResponse({"error": "try again later"}, status_code=503)
    return JSONResponse({"order": placed.id}, status_code=201)


web = Starlette(
    lifespan=app.lifespan,
    routes=[
        Route("/", dashboard),
        Route("/figures", figures),
        Route("/orders", order, methods=["POST"]),
        # /kafka/health/ready, /kafka/metrics, and the page of the channels at /kafka/.
        Mount("/kafka", app.asgi),
    ],
)
