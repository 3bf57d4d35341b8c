"""The error of a decorator or a call that names a channel which is not configured. Pure."""

from __future__ import annotations

from typing import Literal

from reactive_kafka.config.kinds import unknown_channel
from reactive_kafka.config.settings import Settings


def unknown_channel_problem(
    who: str, kind: Literal["incoming", "outgoing"], name: str, settings: Settings
) -> str:
    """Return why a name is no channel of this kind.

    Args:
        who: The decorator or call that gave the name.
    """
    if name in settings.memory:
        return (
            f"{who}: [memory.{name}] is a memory channel, which has a handler, and neither "
            "partitions nor positions"
        )
    channels = settings.incoming if kind == "incoming" else settings.outgoing
    known = {**channels, **settings.memory}
    return (
        f"{who}: no [{kind}.{name}] is configured in "
        f"{settings.source}{unknown_channel(name, known)}"
    )
