"""Acks by hand for the whole application, except for one channel and one handler."""

from reactive_kafka import App, Message

app = App(
    {
        "kafka": {
            "bootstrap_servers": "localhost:9092",
            "auto_offset_reset": "earliest",
            "ack": "manual",
        },
        "incoming": {
            "payments": {"group_id": "shop"},
            "clicks": {"group_id": "shop", "ack": "post"},
            "visits": {"group_id": "shop"},
        },
    }
)
booked: list[str] = []


# By hand, as [kafka] says.
@app.incoming("payments")
async def pay(message: Message[str]) -> None:
    if message.payload != "on hold":
        booked.append(message.payload)
        print("booked", message.payload, flush=True)
        await message.ack()


# Acked when it returns, as its channel says.
@app.incoming("clicks")
async def click(page: str) -> None:
    print("clicked", page, flush=True)


# The handler has the last word.
@app.incoming("visits", ack="post")
async def visit(page: str) -> None:
    print("visited", page, flush=True)


if __name__ == "__main__":
    app.run()
