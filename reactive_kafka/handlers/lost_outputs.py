"""Tells of handlers whose outputs may be lost: what they return is sent after a transaction has
settled the record.
"""

from __future__ import annotations

from collections.abc import Iterator

from reactive_kafka.handlers.method_calls import calls_method
from reactive_kafka.handlers.signature import name_and_place
from reactive_kafka.handlers.spec import IncomingSpec


def may_lose_outputs(spec: IncomingSpec) -> Iterator[str]:
    """A warning for each handler that opens a transaction of the checkpoint store and returns what
    is sent.

    The rows and the position are stored when the block ends, and the output is sent after that: a
    crash in between loses it, and so does an output that cannot be written.
    """
    settings = spec.settings
    if settings.commit_strategy != "checkpoint" or settings.checkpoint is None:
        return
    for handler in spec.handlers:
        outgoing = spec.outgoing_of(handler)
        if outgoing and calls_method(handler.function, "transaction"):
            where = settings.place("commit_strategy", settings.commit_strategy)
            names = ", ".join(f"@app.outgoing({name!r})" for name in outgoing)
            yield (
                f"{where}, with {names} of {name_and_place(handler.function)}: transaction() stores the rows and the "
                "position before the output is sent, so that a crash, or an output that cannot be written, loses it; "
                "write the output to a table in the transaction, and send it from there (an outbox: "
                "docs/checkpoints.md); an outbox of our own comes later"
            )
