"""What the tests of channels with a checkpoint store share: applications on one store in memory."""

from __future__ import annotations

from typing import Any

from reactive_kafka import App, Checkpoint
from reactive_kafka.checkpoint.store import Write as Write
from reactive_kafka.checkpoint.stores.memory_store import MemoryStore as MemoryStore
from reactive_kafka.checkpoint.stores.memory_store import Outcome as Outcome
from reactive_kafka.checkpoint.stores.memory_store import Rows as Rows
from reactive_kafka.checkpoint.stores.memory_store import forget as forget
from reactive_kafka.tracking.metadata.codec import without_topic
from tests.app.helpers import Recorder, make_app, tp

GROUP = "billing"
CHECKPOINT = {"store": "memory://unused"}


def app_on(rows: Rows, recorder: Recorder | None = None, *, who: str = "a", **orders: Any) -> App:
    """An application whose channel orders keeps its positions in *rows*; :func:`store_of` is its
    own client of them.
    """
    checkpoint = {**CHECKPOINT, **orders.pop("checkpoint", {})}
    settings = {
        "commit_strategy": "checkpoint",
        "commit_interval": "1s",
        "checkpoint": checkpoint,
        **orders,
    }
    app = make_app(recorder, **settings)
    store = MemoryStore(rows, who=who)
    app._stores = lambda _: store
    return app


def store_of(app: App) -> MemoryStore:
    """The client of the store that an application has."""
    assert app._stores is not None
    store = app._stores(None)  # type: ignore[arg-type]
    assert isinstance(store, MemoryStore)
    return store


def row(rows: Rows, partition: int = 0) -> Checkpoint:
    """The row of a partition of orders, which must be there; without the topic's id, which stands
    in each.
    """
    found = rows.row(GROUP, tp(partition))
    assert found is not None
    return found._replace(metadata=without_topic(found.metadata, found.position or 0))
