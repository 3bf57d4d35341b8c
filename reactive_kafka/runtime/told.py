"""What the log says of an application once it has started."""

from __future__ import annotations

from collections.abc import Iterator

from reactive_kafka.runtime.channels import RunChannels
from reactive_kafka.runtime.spec import RunSpec


def oddities(spec: RunSpec, channels: RunChannels | None) -> Iterator[str]:
    """What the configuration may say, and hardly means."""
    yield from spec.settings.warnings
    yield from spec.app.warnings
    if channels is not None and channels.tracing.problem is not None:
        yield channels.tracing.problem
    for name in spec.app.unfed:
        if name not in spec.emitters:
            yield f"nothing feeds outgoing channel {name!r}: no @app.outgoing or app.emitter() names it"


def not_started(spec: RunSpec) -> Iterator[str]:
    """The channels that wait for the application to start them, and how it does."""
    for name, channel in spec.app.incoming.items():
        if not channel.settings.enabled:
            yield f"channel {name!r} is not enabled; app.channel({name!r}).start() starts it"
        elif not channel.has_handler:
            yield f"channel {name!r} has no handler; it starts when app.channel({name!r}) is iterated"
