"""A group that has its offsets in Kafka moves them to a database: the settings change, nothing else
does.

Where the store has no row for a partition, reading begins at the position that the group has
committed to Kafka.
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
