"""What is allowed as it stands and hardly meant is told, each in one line that says what to
change.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import reactive_kafka
from reactive_kafka.config.startup_warnings.traps import VARIABLES
from tests.config.loading import incoming, loaded, unused, write

OURS = re.compile(r"(?<!_)REACTIVE_KAFKA_(?!_)[A-Z_]*[A-Z]")


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("REACTIVE_KAFKA_HTTP_PORT", "REACTIVE_KAFKA__HTTP__PORT"),
        ("REACTIVE_KAFKA_INCOMING_ORDERS_GROUP_ID", "REACTIVE_KAFKA__INCOMING__ORDERS__GROUP_ID"),
        ("REACTIVE_KAFKA_INCOMING__ORDERS__GROUP_ID", "REACTIVE_KAFKA__INCOMING__ORDERS__GROUP_ID"),
        ("reactive_kafka_incoming_orders_topic", "REACTIVE_KAFKA__INCOMING__ORDERS__TOPIC"),
        (
            "REACTIVE_KAFKA_INCOMING_ORDERS_RETRY_MAX_ATTEMPTS",
            "REACTIVE_KAFKA__INCOMING__ORDERS__RETRY__MAX_ATTEMPTS",
        ),
        ("REACTIVE_KAFKA_GROUP_ID", "REACTIVE_KAFKA__KAFKA__GROUP_ID"),
        ("REACTIVE_KAFKA_KAFKA_SECURITY_PROTOCOL", "REACTIVE_KAFKA__KAFKA__SECURITY_PROTOCOL"),
        ("REACTIVE_KAFKA_SASL_PLAIN_PASSWORD", "REACTIVE_KAFKA__KAFKA__SASL_PLAIN_PASSWORD"),
        ("REACTIVE_KAFKA_SCHEMA_REGISTRY_URL", "REACTIVE_KAFKA__SCHEMA_REGISTRY__URL"),
        ("REACTIVE_KAFKA_LOGFORMAT", "did you mean REACTIVE_KAFKA_LOG_FORMAT?"),
        ("reactive_kafka_config", "did you mean REACTIVE_KAFKA_CONFIG?"),
        (
            "REACTIVE_KAFKA_SOMETHING_ELSE",
            "settings are named REACTIVE_KAFKA__SECTION__KEY, with two underscores",
        ),
        (
            "REACTIVE_KAFKA_",
            "settings are named REACTIVE_KAFKA__SECTION__KEY, with two underscores",
        ),
        (
            "REACTIVE_KAFKA_BOOTSTRAP_SERVERS",
            "an application reads REACTIVE_KAFKA__KAFKA__BOOTSTRAP_SERVERS",
        ),
    ],
)
def test_a_variable_of_ours_that_nobody_reads_is_told_without_its_value(
    variable: str, said: str
) -> None:
    (line,) = unused(incoming(), {variable: "canary"})
    assert line.startswith(f"environment variable {variable}: not read")
    assert said in line
    assert "canary" not in line


@pytest.mark.parametrize(
    "environ",
    [
        dict.fromkeys(
            VARIABLES - {"REACTIVE_KAFKA_CONFIG", "REACTIVE_KAFKA_BOOTSTRAP_SERVERS"}, "x"
        ),
        # The same as the application's.
        {"REACTIVE_KAFKA_BOOTSTRAP_SERVERS": "localhost:9092"},
        {"REACTIVE_KAFKA__HTTP__PORT": "9100", "REACTIVE": "x", "MY_REACTIVE_KAFKA_PORT": "x"},
        # Of a Service called reactive-kafka, in every pod beside it.
        {
            "REACTIVE_KAFKA_SERVICE_HOST": "10.0.0.1",
            "REACTIVE_KAFKA_SERVICE_PORT_HTTP": "9000",
            "REACTIVE_KAFKA_PORT_9000_TCP_ADDR": "10.0.0.1",
        },
    ],
)
def test_a_variable_that_is_read_or_nobodys_mistake_is_not_told(environ: dict[str, str]) -> None:
    assert unused(incoming(), environ) == []


def test_every_variable_that_the_package_names_is_known_as_one_that_is_read() -> None:
    package = Path(reactive_kafka.__file__).parent
    named = {name for file in package.rglob("*.py") for name in OURS.findall(file.read_text())}
    assert named == VARIABLES


# -- what of code and files counts


def test_a_file_that_the_environment_names_and_tables_in_code_pass_over_is_told(
    tmp_path: Path,
) -> None:
    file = write(tmp_path, "prod.toml", "[incoming.orders]\ngroup_id = 'billing'\n")
    environ = {"REACTIVE_KAFKA_CONFIG": str(file)}
    told = f"environment variable REACTIVE_KAFKA_CONFIG = '{file}': not read: the configuration is that of "
    assert unused(incoming(), environ) == [told + "App({...}), which has tables"]
    other = write(tmp_path, "other.toml", "[incoming.orders]\ngroup_id = 'billing'\n")
    assert unused(other, environ) == [f"{told}{other}"]
    assert unused(None, environ) == unused(file, environ) == []


def test_the_usual_file_beside_tables_in_code_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert unused(incoming()) == []
    file = write(tmp_path, "reactive-kafka.toml", "[incoming.orders]\ngroup_id = 'billing'\n")
    why = "not read: App({...}) has tables, which are the whole configuration; App() would read the file"
    assert unused(incoming()) == [f"{file}: {why}"]
    assert unused(None) == []


# -- members of one group


def channels(**channels: dict[str, Any]) -> dict[str, Any]:
    return {"kafka": {"group_id": "shop"}, "incoming": channels}


ALL_GIVE_UP = "so all give up their partitions when one joins or leaves"


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            channels(a={}, b={}),
            f"channels 'a' and 'b' are members of one group and read different topics, {ALL_GIVE_UP}",
        ),
        (
            channels(a={}, b={}, c={}, d={}, e={}),
            "channels 'a', 'b', 'c' and 2 more are members of one group",
        ),
        (channels(a={}, b={"pattern": "b.*"}), "read different topics"),
        (
            channels(a={"topic": "t"}, b={"topic": "t"}),
            "channels 'a' and 'b' are members of one group and both read topic 't', so each record goes to only one",
        ),
        (channels(a={"pattern": "t.*"}, b={"pattern": "t.*"}), "both read topics that match 't.*'"),
        (
            channels(**{f"c{number:04}": {"topic": "t"} for number in range(1000)}),
            "channels 'c0000', 'c0001', 'c0002' and 997 more are members of one group and all read topic 't', so each",
        ),
        (
            channels(a={"topics": ["t", "u"]}, b={"topics": ["t", "u"]}),
            "channels 'a' and 'b' are members of one group and both read topic 't', so each",
        ),
    ],
)
def test_channels_that_are_members_of_one_group_are_told_once(
    tables: dict[str, Any], said: str
) -> None:
    (line,) = unused(tables)
    place = "code: [kafka] group_id = 'shop': give each channel a group_id of its own: channels "
    assert line.startswith(place)
    assert said in line


def test_topics_that_differ_and_overlap_are_two_traps() -> None:
    different, common = unused(channels(a={"topics": ["t", "u"]}, b={"pattern": "u.*"}))
    assert "read different topics" in different
    assert "both read topic 'u'" in common


@pytest.mark.parametrize(
    "tables",
    [
        channels(a={}),
        channels(a={}, b={"group_id": "other"}),
        # No member of the group.
        channels(a={}, b={"assign": ["b:0"], "commit_strategy": "ignore"}),
        # The same name in another cluster.
        channels(a={}, b={"bootstrap_servers": "elsewhere:9092"}),
        channels(a={"consumers": 3}),
    ],
)
def test_channels_that_share_no_group_are_not_told(tables: dict[str, Any]) -> None:
    assert unused(tables) == []


def test_what_is_told_says_where_it_stands(tmp_path: Path) -> None:
    text = "[kafka]\ngroup_id = 'shop'\n[incoming.a]\n[incoming.b]\n"
    file = write(tmp_path, "a.toml", text)
    assert unused(file)[0].startswith(
        f"{file}, line 2: [kafka] group_id = 'shop': give each channel"
    )


def test_a_configuration_with_problems_is_told_those_alone() -> None:
    with pytest.raises(ValueError, match="unknown key") as caught:
        loaded(channels(a={}, b={"nonsense": 1}))
    assert "members of one group" not in str(caught.value)
