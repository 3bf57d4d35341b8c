"""The hooks of a channel without any, and the client whose hooks are called."""

from __future__ import annotations

from typing import Any

from reactive_kafka.assignment.rebalance_hooks import HOOK_CLIENT, RebalanceHooks


def no_hooks() -> RebalanceHooks:
    """A channel whose application has no hooks."""
    return RebalanceHooks()


def call_hooks_of(client: str) -> None:
    """From now on the hooks that the present task calls are those of this client."""
    runner: Any = client
    HOOK_CLIENT.set(runner)
