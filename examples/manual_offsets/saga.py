"""Orders as sagas in memory: each is open from its first event to its last.

No event is marked while an order that began before it is open. So after a crash the next owner
reads all events of the open orders again, and rebuilds them.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from reactive_kafka import App, Message, TopicPartition

app = App(
    {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "incoming": {
            "orders": {
                "group_id": "fulfilment",
                "auto_offset_reset": "earliest",
                # An order may be open for days.
                "unprocessed_record_max_age": 0,
                # Open orders come again, so a stop need not wait for them.
                "drain_timeout": "1s",
                # Room for all events since the oldest open order began.
                "max_in_flight": 100_000,
            }
        },
    }
)


@dataclass
class Event:
    order: str
    step: str


@dataclass
class Saga:
    # The event before its first one.
    after: Message[Event] | None
    steps: list[str] = field(default_factory=list)


@dataclass
class Log:
    """What is known of one partition."""

    last: Message[Event] | None = None
    # Open ones, the oldest first.
    sagas: dict[str, Saga] = field(default_factory=dict)


logs: dict[TopicPartition, Log] = defaultdict(Log)


def complete(order: str, steps: list[str]) -> None:
    """Finish an order. It may be called again for orders completed after the last mark."""
    print(order, *steps, flush=True)


@app.on_assigned("orders")
async def rebuild(partitions: frozenset[TopicPartition]) -> None:
    """Begin at the mark with an empty memory, also if this process had the partition before."""
    marks = await app.channel("orders").committed()
    for partition in partitions:
        logs.pop(partition, None)
        mark = marks[partition]
        await app.channel("orders").seek(partition, "beginning" if mark is None else mark)


@app.incoming("orders", ack="manual")
async def step(message: Message[Event]) -> None:
    event = message.payload
    log = logs[message.topic_partition]
    saga = log.sagas.setdefault(event.order, Saga(log.last))
    saga.steps.append(event.step)
    log.last = message
    if event.step == "delivered":
        del log.sagas[event.order]
        complete(event.order, saga.steps)
        oldest = next(iter(log.sagas.values()), None)
        mark = message if oldest is None else oldest.after
        if mark is not None:
            await app.channel("orders").ack_up_to(mark)


if __name__ == "__main__":
    app.run()
