"""Warns of handler calls that take longer than a revocation waits for them. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from reactive_kafka.observe.events import HandlerSlow
from reactive_kafka.verdicts.channel_context import ChannelContext

TOLD_EVERY_S = 600.0
"""A channel reports long calls once in this time, and health shows them so long."""


class LongCalls:
    """Looks at how long the calls of one channel's handlers take.

    A rebalance leaves a call behind that takes longer than ``revoke_grace``, and the next owner
    handles its records again. That shows in the first rebalance under load, which may be a long
    time after the first such call.
    """

    def __init__(self, channel: ChannelContext) -> None:
        settings = channel.settings
        self._channel = channel
        # Calls up to this long are not looked at. Given partitions are never revoked, and with
        # ``revoke_grace = 0`` no call is waited for anyway.
        self.limit_s = inf
        if settings.group_id is not None and not settings.assign and settings.revoke_grace_s:
            self.limit_s = settings.revoke_grace_s
        self._told_at = -inf
        self._last: HandlerSlow | None = None

    def look(self, took_s: float) -> None:
        """A call has taken so long, waits for room or a write included, without those between
        attempts.
        """
        if took_s <= self.limit_s:
            return
        now = self._channel.clock.monotonic()
        if self._last is not None and took_s <= self._last.took_s and now < self._until:
            return
        self._last = HandlerSlow(
            channel=self._channel.settings.name, took_s=took_s, grace_s=self.limit_s
        )
        if now >= self._until:
            self._told_at = now
            self._channel.observer.on(self._last)

    @property
    def _until(self) -> float:
        """When the last report is out of date."""
        return self._told_at + TOLD_EVERY_S

    def warnings(self, now: float) -> Iterator[str]:
        """Yield a sentence about the longest call since the last report, while that is recent."""
        if self._last is not None and now < self._until:
            yield self._last.text()
