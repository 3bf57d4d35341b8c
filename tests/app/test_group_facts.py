"""What is shown of a channel's group."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka import App
from tests.app.helpers import in_virtual_time, running


@pytest.mark.parametrize(
    ("channel", "protocol"),
    [
        ({"group_id": "billing"}, "classic"),
        ({"group_id": "billing", "assign": ["orders:0"]}, None),
        ({"assign": ["orders:0"], "commit_strategy": "ignore"}, None),
    ],
)
def test_a_connected_channel_shows_the_protocol_of_its_group(
    channel: dict[str, Any], protocol: str | None
) -> None:
    app = App({"incoming": {"orders": channel}})

    @app.incoming("orders")
    async def orders(payload: Any) -> None: ...

    @in_virtual_time
    async def shown() -> None:
        assert app.facts().channels == ()
        async with running(app) as test:
            await test.settled()
            [facts] = app.facts().channels
            assert facts.protocol == protocol

    shown()
