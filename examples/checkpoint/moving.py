"""A group moves its offsets from Kafka to a database. Only the settings change.

A partition without a row in the store starts at the position that the group has committed to Kafka.
"""

from reactive_kafka import App

SETTINGS = {
    "kafka": {"bootstrap_servers": "localhost:9092"},
    "incoming": {"orders": {"group_id": "billing", "auto_offset_reset": "earliest"}},
}
CHECKPOINT = {"commit_strategy": "checkpoint", "checkpoint": {"store": "sqlite:///offsets.db"}}

before = App(SETTINGS)
after = App({**SETTINGS, "incoming": {"orders": {**SETTINGS["incoming"]["orders"], **CHECKPOINT}}})


@before.incoming("orders")
@after.incoming("orders")
async def handle(order: dict) -> None:
    print(order["id"], flush=True)


if __name__ == "__main__":
    after.run()
