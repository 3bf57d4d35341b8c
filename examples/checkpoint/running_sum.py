"""A sum for each partition, stored with its position: after a crash both are of the same moment."""

from dataclasses import dataclass

from reactive_kafka import App, Message

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "payments": {
                "group_id": "ledger",
                "auto_offset_reset": "earliest",
                "commit_strategy": "checkpoint",
                "checkpoint": {"store": "sqlite:///offsets.db", "state": "running_sum:Ledger"},
            }
        },
    }
)


@dataclass
class Ledger:
    count: int = 0
    cents: int = 0


@app.incoming("payments")
async def add(payment: Message[dict]) -> None:
    ledger = payment.checkpoint.get() or Ledger()
    ledger.count += 1
    ledger.cents += payment.payload["cents"]
    # Stored with the position behind this payment, once it is acked.
    payment.checkpoint.set(ledger)
    print(f"{payment.topic_partition}: {ledger.cents} cents in {ledger.count}", flush=True)


if __name__ == "__main__":
    app.run()
