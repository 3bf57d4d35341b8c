"""What is said where somebody writes what another library calls it."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest

from reactive_kafka import App, ConfigError, Router


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("subscriber", '@app.incoming("orders")'),
        ("task", '@app.incoming("orders")'),
        ("publisher", '@app.outgoing("invoices")'),
        ("include_router", "app.include(router)"),
        ("incomming", "did you mean app.incoming?"),
    ],
)
@pytest.mark.parametrize("made", [App, Router])
def test_a_name_that_is_not_there_says_what_to_write(
    made: type[App | Router], name: str, hint: str
) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute {name!r}") as raised:
        getattr(made(), name)
    assert hint in str(raised.value)


def test_a_name_like_no_other_and_a_private_one_are_plain_attribute_errors() -> None:
    for name in ("zzzzzz", "__deepcopy__", "_incomming"):
        with pytest.raises(AttributeError, match=r"has no attribute '[^:]*'$"):
            getattr(App(), name)
    assert not hasattr(App(), "__wrapped__")
    copy.copy(Router())


@pytest.mark.parametrize("servers", ["localhost:9092", "kafka-1.example:9092,kafka-2.example:9093"])
def test_brokers_in_the_place_of_a_file_are_told_from_a_file(servers: str) -> None:
    with pytest.raises(ConfigError, match="this looks like brokers: write App"):
        App(servers).configure()


@pytest.mark.parametrize(
    ("server", "hint"),
    [
        (
            "PLAINTEXT://host:9092",
            "write 'host:9092' without 'PLAINTEXT://'.*security_protocol = \"PLAINTEXT\"",
        ),
        (
            "sasl_ssl://me:SECRET@host:9092",
            "write 'host:9092' without 'sasl_ssl://'.*security_protocol = \"SASL_SSL\"",
        ),
        ("kafka://host:9092/", "write 'host:9092' without 'kafka://'$"),
    ],
)
def test_a_scheme_before_a_broker_says_where_it_goes(server: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        App({"kafka": {"bootstrap_servers": server}}).configure()


def test_python_m_reactive_kafka_is_the_command_line() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "reactive_kafka", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ended.stdout.startswith("reactive-kafka ")
