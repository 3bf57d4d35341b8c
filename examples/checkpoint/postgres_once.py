"""Exactly once into PostgreSQL: the row and the position are one transaction."""

from sqlalchemy import text

from reactive_kafka import App, Message

TABLE = "CREATE TABLE IF NOT EXISTS invoices (customer TEXT, cents BIGINT)"
INSERT = text("INSERT INTO invoices (customer, cents) VALUES (:customer, :cents)")

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "orders": {
                "group_id": "billing",
                "auto_offset_reset": "earliest",
                "commit_strategy": "checkpoint",
                "checkpoint": {
                    "store": "${DATABASE:-postgresql+asyncpg://postgres@localhost/shop}"
                },
            }
        },
    }
)


@app.incoming("orders")
async def invoice(order: Message[dict]) -> None:
    # An AsyncConnection of SQLAlchemy.
    async with order.transaction() as connection:
        await connection.execute(
            INSERT, {"customer": order.payload["customer"], "cents": order.payload["cents"]}
        )


if __name__ == "__main__":
    app.run()
