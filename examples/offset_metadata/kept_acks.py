"""Kept acks: one slow record holds back the position.

The records after it that are done are not handled again after a crash.
"""

import asyncio
import os

from reactive_kafka import App, Message

SLOW_S = float(os.environ.get("SLOW_S", "30"))

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "mails": {
                "group_id": "mailer",
                "auto_offset_reset": "earliest",
                "ordering": "unordered",
                "concurrency": 10,
                "commit_interval": "1s",
                "keep_out_of_order_acks": True,
            }
        },
    }
)


async def send_mail(text: str) -> None:
    if text.startswith("slow"):
        await asyncio.sleep(SLOW_S)
    print("sent", text, flush=True)


@app.incoming("mails")
async def send(message: Message[str]) -> None:
    await send_mail(message.payload)


if __name__ == "__main__":
    app.run()
