"""What the log says about an application once it has started. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from reactive_kafka.runtime.run_plan import RunPlan


def start_warnings(plan: RunPlan, tracing_problem: str | None) -> Iterator[str]:
    """Yield what the configuration may say, but hardly means.

    Args:
        tracing_problem: Why spans are not made although the settings ask for them.
    """
    yield from plan.settings.warnings
    yield from plan.channels.warnings
    if tracing_problem is not None:
        yield tracing_problem
    # A Spark function names the channel only when it sends.
    may_send = any(channel.spark is not None for channel in plan.channels.incoming.values())
    for name in plan.channels.unfed:
        if name not in plan.emitters and not may_send:
            yield (
                f"nothing feeds outgoing channel {name!r}: no @app.outgoing or app.emitter() "
                "names it"
            )


def not_started(plan: RunPlan) -> Iterator[str]:
    """Yield which channels the application has to start itself, and how."""
    for name, channel in plan.channels.incoming.items():
        if not channel.settings.enabled:
            yield f"channel {name!r} is not enabled; app.channel({name!r}).start() starts it"
        elif not channel.has_handler:
            yield (
                f"channel {name!r} has no handler; it starts when app.channel({name!r}) is iterated"
            )
