"""Ranges in ``assign`` are read in the group that stands beside them, and never in an inherited
one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.config.loading import loaded, only_problem

RANGES = ["orders:0:100..200"]
BASE = {
    "kafka": {"bootstrap_servers": "localhost:9092"},
    "incoming": {"orders": {"group_id": "billing"}},
}
TOML = '[incoming.orders]\ngroup_id = "billing"\n'
REPLAY = '[incoming.orders]\nassign = ["orders:0:100..200"]\n'
PROPERTIES = "mp.messaging.incoming.orders.connector=smallrye-kafka\nmp.messaging.incoming.orders.group.id=billing\n"
NAMED = "quarkus.application.name=billing\nmp.messaging.incoming.orders.connector=smallrye-kafka\n"
VARIABLE = "REACTIVE_KAFKA__INCOMING__ORDERS__"


def files(folder: Path, **texts: str) -> list[Path]:
    paths = []
    for name, text in texts.items():
        path = folder / name.replace("_", ".")
        path.write_text(text)
        paths.append(path)
    return paths


@pytest.mark.parametrize(
    ("texts", "code", "environ", "overrides"),
    [
        ({"base_toml": TOML, "replay_toml": REPLAY}, None, {}, None),
        (
            {
                "base_toml": '[kafka]\ngroup_id = "billing"\n[incoming.orders]\n',
                "replay_toml": REPLAY,
            },
            None,
            {},
            None,
        ),
        ({"one_toml": '[kafka]\ngroup_id = "billing"\n' + REPLAY}, None, {}, None),
        ({"base_properties": PROPERTIES, "replay_toml": REPLAY}, None, {}, None),
        ({"base_properties": NAMED, "replay_toml": REPLAY}, None, {}, None),
        ({"base_toml": TOML}, None, {VARIABLE + "ASSIGN": str(RANGES).replace("'", '"')}, None),
        ({"base_toml": TOML}, None, {VARIABLE + "ASSIGN": "orders:0:100..200"}, None),
        ({"replay_toml": REPLAY}, BASE, {}, None),
        ({"replay_toml": REPLAY}, {"kafka": {"group_id": "billing"}}, {}, None),
        ({"replay_toml": REPLAY}, None, {VARIABLE + "GROUP_ID": "billing"}, None),
        ({"replay_toml": REPLAY}, None, {"REACTIVE_KAFKA__KAFKA__GROUP_ID": "billing"}, None),
        ({"replay_toml": REPLAY}, None, {}, {"incoming": {"orders": {"group_id": "billing"}}}),
        ({"base_toml": TOML}, None, {}, {"incoming": {"orders": {"assign": RANGES}}}),
        (
            {"base_toml": TOML + 'commit_strategy = "throttled"\n', "replay_toml": REPLAY},
            None,
            {},
            None,
        ),
        (
            {"base_toml": TOML + 'commit_strategy = "latest"\n', "replay_toml": REPLAY},
            None,
            {},
            None,
        ),
        (
            {"base_toml": TOML + "enable_auto_commit = true\n", "replay_toml": REPLAY},
            None,
            {},
            None,
        ),
        (
            {"base_toml": TOML + "keep_out_of_order_acks = true\n", "replay_toml": REPLAY},
            None,
            {},
            None,
        ),
    ],
)
def test_ranges_inherit_no_group_from_any_layer_or_table(
    texts: dict[str, str],
    code: dict[str, Any] | None,
    environ: dict[str, str],
    overrides: Any,
    tmp_path: Path,
) -> None:
    settings = loaded(files(tmp_path, **texts), environ, code=code, overrides=overrides).incoming[
        "orders"
    ]
    assert (settings.group_id, settings.commit_strategy, bool(settings.ranges)) == (
        None,
        "ignore",
        True,
    )
    assert not settings.client.get("enable_auto_commit")


@pytest.mark.parametrize(
    ("texts", "environ"),
    [
        ({"one_toml": REPLAY + 'group_id = "replay"\n'}, {}),
        ({"base_toml": TOML, "replay_toml": REPLAY + 'group_id = "replay"\n'}, {}),
        ({"one_toml": REPLAY + 'group_id = "replay"\n'}, {VARIABLE + "GROUP_ID": "billing"}),
        (
            {"base_toml": TOML},
            {VARIABLE + "ASSIGN": "orders:0:100..200", VARIABLE + "GROUP_ID": "replay"},
        ),
    ],
)
def test_the_group_that_stands_beside_ranges_counts_whatever_other_layers_say(
    texts: dict[str, str], environ: dict[str, str], tmp_path: Path
) -> None:
    settings = loaded(files(tmp_path, **texts), environ).incoming["orders"]
    assert (settings.group_id, settings.commit_strategy) == ("replay", "throttled")


@pytest.mark.parametrize(
    ("texts", "environ"),
    [
        (
            {
                "one_toml": '[kafka]\ngroup_id = "g"\n[incoming.orders]\nassign = ["orders:0:5"]\ngroup_id = false\n'
            },
            {},
        ),
        (
            {
                "base_toml": TOML,
                "next_toml": '[incoming.orders]\nassign = ["orders:0:5"]\ngroup_id = false\n',
            },
            {},
        ),
        ({"base_toml": TOML + 'assign = ["orders:0:5"]\n'}, {VARIABLE + "GROUP_ID": "false"}),
        ({"one_toml": REPLAY + 'group_id = "replay"\n'}, {VARIABLE + "GROUP_ID": "false"}),
    ],
)
def test_false_takes_a_group_away(
    texts: dict[str, str], environ: dict[str, str], tmp_path: Path
) -> None:
    environ = {**environ, VARIABLE + "COMMIT_STRATEGY": "ignore"}
    assert loaded(files(tmp_path, **texts), environ).incoming["orders"].group_id is None


def test_a_channel_that_needs_a_group_and_has_it_taken_away_is_told() -> None:
    assert "group_id is missing" in only_problem(
        {"kafka": {"group_id": "g"}, "incoming": {"orders": {"group_id": False}}}
    )
    assert "group_id = true: expected a string that is not empty, or false" in only_problem(
        {"incoming": {"orders": {"group_id": True}}}
    )


def test_ranges_that_cannot_do_without_a_group_name_the_one_that_is_not_theirs(
    tmp_path: Path,
) -> None:
    mixed = '[incoming.orders]\nassign = ["orders:0:100..200", "orders:1:17"]\n'
    line = only_problem(files(tmp_path, base_toml=TOML, replay_toml=mixed))
    assert "write it next to the ranges in assign" in line
    assert "group_id = 'billing'" in line and "base.toml, line 2" in line


def test_the_client_does_not_commit_positions_of_ranges_by_itself() -> None:
    channel = {"assign": RANGES, "group_id": "replay", "enable_auto_commit": True}
    assert "move the group back" in only_problem({"incoming": {"orders": channel}})


@pytest.mark.parametrize("item", ["orders:*@{}..{}", "orders:3@{}..{}"])
def test_ranges_of_times_inherit_no_group_either(item: str, tmp_path: Path) -> None:
    assign = item.format("2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z")
    replay = f'[incoming.orders]\nassign = ["{assign}"]\n'
    settings = loaded(files(tmp_path, base_toml=TOML, replay_toml=replay)).incoming["orders"]
    assert (settings.group_id, settings.commit_strategy) == (None, "ignore")
    own = replay + 'group_id = "replay"\n'
    settings = loaded(files(tmp_path, base_toml=TOML, replay_toml=own)).incoming["orders"]
    assert (settings.group_id, settings.commit_strategy) == ("replay", "throttled")


def test_a_range_of_times_has_no_group_of_another_channel_of_its_topic() -> None:
    assign = "orders:*@2026-11-20T00:00:00Z..2026-11-21T00:00:00Z"
    tables = {
        "incoming": {
            "orders": {"group_id": "billing"},
            "replay": {"group_id": "billing", "assign": [assign]},
        }
    }
    assert "also reads 'orders'" in only_problem(tables)
