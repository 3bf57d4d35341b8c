"""Positions in a database of one's own: whoever has a partition next, on any host, goes on where the last owner was."""

from reactive_kafka import App, Message

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092", "client.id": "shop-${HOSTNAME:-1}"},  # one for each node
        "incoming": {
            "sales": {
                "topics": ["orders", "returns"],  # each partition of each of them has a row in the store
                "group_id": "shop",
                "auto_offset_reset": "earliest",  # only where neither the store nor Kafka knows a position
                "commit_strategy": "checkpoint",
                "commit_interval": "500ms",  # one write for all that was handled meanwhile
                "checkpoint": {
                    "store": "sqlite:///offsets.db",
                    "kafka_commit_interval": "30s",  # Kafka gets the positions now and then, for those who look there
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
