"""Quix Streams: a streaming dataframe with one function, checkpoints once a second here (5 seconds
by default).
"""

from __future__ import annotations

import tempfile

from quixstreams import Application

from benchmarks.contenders.meter import Result
from benchmarks.peers.contenders.work import SESSION_S, Task, Work


def each(task: Task) -> Result:
    """A record at a time, which is its only way; deserialised to bytes, without state."""
    work = Work(task)
    with tempfile.TemporaryDirectory(prefix="quix-") as folder:
        app = Application(
            broker_address=task.bootstrap,
            consumer_group=task.group,
            auto_offset_reset="earliest",
            state_dir=folder,
            commit_interval=1.0,
            loglevel="ERROR",
            auto_create_topics=False,
            use_changelog_topics=False,
            consumer_extra_config={
                "session.timeout.ms": int(SESSION_S * 1e3),
                "heartbeat.interval.ms": 2_000,
                "fetch.queue.backoff.ms": 10,
            },
        )

        def handle(value: bytes) -> None:
            if work.did(value):
                app.stop()

        topic = app.topic(task.topic, key_deserializer="bytes", value_deserializer="bytes")
        app.dataframe(topic).update(handle)
        app.run()
    return work.result()
