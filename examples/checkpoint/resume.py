"""Positions in your own database: the next owner of a partition, on any host, continues there."""

from reactive_kafka import App, Message

app = App(
    {
        # One for each node.
        "kafka": {"bootstrap_servers": "localhost:9092", "client.id": "shop-${HOSTNAME:-1}"},
        "incoming": {
            "sales": {
                # Each partition of each of them has a row in the store.
                "topics": ["orders", "returns"],
                "group_id": "shop",
                # Only where neither the store nor Kafka knows a position.
                "auto_offset_reset": "earliest",
                "commit_strategy": "checkpoint",
                # One write for all records of this time.
                "commit_interval": "500ms",
                "checkpoint": {
                    "store": "sqlite:///offsets.db",
                    # Kafka gets the positions too, for tools that look there.
                    "kafka_commit_interval": "30s",
                },
            }
        },
    }
)


@app.incoming("sales")
async def book(sale: Message[dict]) -> None:
    print(f"{sale.topic} {sale.partition}/{sale.offset}: {sale.payload['total']}", flush=True)


if __name__ == "__main__":
    app.run()
