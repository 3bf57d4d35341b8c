"""Exactly once into Redis: the handler's commands and the position go in one MULTI."""

from reactive_kafka import App, Message

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "orders": {
                "group_id": "stock",
                "auto_offset_reset": "earliest",
                "commit_strategy": "checkpoint",
                "checkpoint": {"store": "${REDIS:-redis://localhost:6379/0}"},
            }
        },
    }
)


@app.incoming("orders")
async def take_from_stock(order: Message[dict]) -> None:
    # Commands are queued, and sent together at the end of the block.
    async with order.transaction() as pipeline:
        pipeline.hincrby("stock", order.payload["article"], -order.payload["pieces"])
        pipeline.rpush("picking", order.payload["article"])


if __name__ == "__main__":
    app.run()
