"""Warns of handlers whose outputs may be lost: they are sent after a transaction has settled the
record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from reactive_kafka.handlers.signature import name_and_place
from reactive_kafka.planning.channel_plans import IncomingPlan
from reactive_kafka.planning.method_calls import calls_method


def may_lose_outputs(plan: IncomingPlan, outboxes: Collection[str]) -> Iterator[str]:
    """Yield a warning for each handler that opens a transaction of the checkpoint store and sends.

    Args:
        outboxes: The outgoing channels with an outbox, which lose nothing.

    The rows and the position are stored when the block ends, and the output is sent after that. A
    crash in between loses the output, and so does an output that cannot be written.
    """
    settings = plan.settings
    if settings.commit_strategy != "checkpoint" or settings.checkpoint is None:
        return
    for handler_plan in plan.handlers:
        function = handler_plan.handler.function
        unsafe = [name for name in handler_plan.outgoing if name not in outboxes]
        if unsafe and calls_method(function, "transaction"):
            where = settings.place("commit_strategy", settings.commit_strategy)
            names = ", ".join(f"@app.outgoing({name!r})" for name in unsafe)
            yield (
                f"{where}, with {names} of {name_and_place(function)}: transaction() stores the "
                "rows and the position before the output is sent, so that a crash, or an output "
                f"that cannot be written, loses it; set outbox = true in [outgoing.{unsafe[0]}] "
                "(PostgreSQL or SQLite): then the output is a row of the transaction "
                "(docs/checkpoints.md)"
            )
