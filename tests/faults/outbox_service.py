"""A service that writes a row for each order, and two events with it: one sent, one returned.

``python -m tests.faults.outbox_service CONFIG``
"""

from __future__ import annotations

import sys
from typing import Any
from uuid import uuid4

from sqlalchemy import text

from reactive_kafka import App, Message, Record

TABLE = 'CREATE TABLE booked (id TEXT, "partition" INT, "offset" BIGINT)'
INSERT = text("INSERT INTO booked VALUES (:id, :partition, :offset)")


def build(config: str) -> App:
    """The application. An event names its row, and a row is new in each attempt."""
    app = App(config)

    @app.incoming("orders")
    @app.outgoing("events")
    async def book(message: Message[bytes]) -> Record:
        row: dict[str, Any] = {
            "id": uuid4().hex,
            "partition": message.partition,
            "offset": message.offset,
        }
        async with message.transaction() as tx:
            await tx.execute(INSERT, row)
            await tx.send(Record({**row, "kind": "sent"}, key=str(message.partition)))
        return Record({**row, "kind": "returned"}, key=str(message.partition))

    return app


if __name__ == "__main__":
    build(sys.argv[1]).run()
