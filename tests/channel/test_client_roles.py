"""The Kafka clients of a channel with several consumers: their names and their shares."""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka.channel.client_roles import client_roles
from tests.app.helpers import make_app

UNUSED: Any = None
"""The commit strategy and the hooks are handed on, and not looked at."""


@pytest.mark.parametrize(("setting", "share"), [({}, 3_333), ({"max_uncommitted": 30}, 10)])
def test_each_connection_has_a_share_of_what_may_be_uncommitted(
    setting: dict[str, int], share: int
) -> None:
    app = make_app(consumers=3, **setting)
    found = client_roles(app.settings.incoming["orders"], UNUSED, UNUSED)
    assert [role.most_uncommitted for role in found] == [share] * 3


def test_each_connection_has_a_name_and_an_instance_id_of_its_own() -> None:
    app = make_app(consumers=3, group_instance_id="pod-7")
    found = client_roles(app.settings.incoming["orders"], UNUSED, UNUSED)
    assert [(role.name, role.settings.client["group_instance_id"]) for role in found] == [
        ("orders", "pod-7"),
        ("orders-2", "pod-7-2"),
        ("orders-3", "pod-7-3"),
    ]
    assert [role.settings.max_in_flight for role in found] == [333, 333, 333]
