"""The trace of the last record that was done: look it up in your tracing tool."""

from reactive_kafka import App, Message, TopicPartition

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "orders": {
                "group_id": "shipping",
                "auto_offset_reset": "earliest",
                "failure_strategy": "dead-letter-queue",
            }
        },
    }
)


@app.incoming("orders")
async def ship(message: Message[str]) -> None:
    trace = message.headers.get("traceparent")
    # It goes with the next position, whether this record is acked or becomes a dead letter.
    if trace is not None:
        app.channel("orders").store_offset_metadata(
            TopicPartition(message.topic, message.partition), trace.decode()
        )
    if not message.payload:
        raise ValueError("an order without a text")
    print("shipped", message.payload, flush=True)


if __name__ == "__main__":
    app.run()
