"""``[outgoing.x.cloud_events]`` and ``cloud_events``: a table or a boolean, and what each layer may
say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reactive_kafka.config.dump import dump
from reactive_kafka.config.tables import CloudEventsSettings
from tests.config.loading import incoming, loaded, only_problem, outgoing, unused, write

TABLE = {
    "mode": "structured",
    "type": "t",
    "source": "/s",
    "subject": "u",
    "data-content-type": "text/json",
}
TABLE |= {"data_schema": "/d", "insert_timestamp": False}
AS_SET = CloudEventsSettings(
    every=True,
    mode="structured",
    type="t",
    source="/s",
    subject="u",
    data_content_type="text/json",
    data_schema="/d",
    insert_timestamp=False,
)


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (outgoing(), CloudEventsSettings()),
        (outgoing(cloud_events=True), CloudEventsSettings(every=True)),
        (outgoing(cloud_events=False), None),
        (outgoing(cloud_events={}), CloudEventsSettings(every=True)),
        (outgoing(cloud_events=TABLE), AS_SET),
        ({"outgoing": {"invoices": {"cloud-events": TABLE}}}, AS_SET),
        (outgoing(value_serializer="cloudevents"), CloudEventsSettings(every=True)),
        ({"kafka": {"cloud_events": False}, **outgoing()}, None),
        (
            {"kafka": {"cloud_events": False}, **outgoing(cloud_events=True)},
            CloudEventsSettings(every=True),
        ),
    ],
)
def test_what_is_written_as_events(tables: Any, expected: CloudEventsSettings | None) -> None:
    assert loaded(tables).outgoing["invoices"].cloud_events == expected


def test_a_dump_reads_as_what_it_was_made_of() -> None:
    for given in ({}, {"cloud_events": True}, {"cloud_events": False}, {"cloud_events": TABLE}):
        settings = loaded(outgoing(**given))
        shown = {"outgoing": dump(settings)["outgoing"]}
        assert loaded(shown).outgoing == settings.outgoing, given


def test_a_variable_turns_a_table_off_or_sets_a_key_of_it(tmp_path: Path) -> None:
    file = write(tmp_path, "app.toml", '[outgoing.invoices.cloud_events]\ntype = "t"\n')
    off = {"REACTIVE_KAFKA__OUTGOING__INVOICES__CLOUD_EVENTS": "false"}
    assert loaded(file, off).outgoing["invoices"].cloud_events is None
    assert unused(file) == []
    (line,) = unused(file, off)
    assert line.endswith(
        "cloud_events.type = 't': has no effect: cloud_events = false writes no CloudEvents (channel outgoing.invoices)"
    )
    source = {"REACTIVE_KAFKA__OUTGOING__INVOICES__CLOUD_EVENTS__SOURCE": "/s"}
    expected = CloudEventsSettings(every=True, type="t", source="/s")
    assert loaded(file, source).outgoing["invoices"].cloud_events == expected


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            outgoing(cloud_events={"mod": "binary"}),
            "cloud_events.mod = 'binary': unknown key; did you mean ",
        ),
        (outgoing(cloud_events={"mode": "batch"}), 'expected one of "binary", "structured"'),
        (outgoing(cloud_events="yes"), "cloud_events = 'yes': expected true or false"),
        (outgoing(cloud_events={"type": ""}), "expected a string that is not empty"),
        (outgoing(key_serializer="cloudevents"), "key_serializer = 'cloudevents': expected one of"),
        (incoming(offset_metadata_deserializer="cloudevents"), "expected one of"),
        (incoming(cloud_events={"mode": "binary"}), "expected true or false, not a table"),
        ({"kafka": {"cloud_events": {"type": "t"}}, **outgoing()}, "cloud_events.type = 't': "),
        (
            outgoing(cloud_events=False, value_serializer="cloudevents"),
            '"cloudevents" means CloudEvents only',
        ),
        (
            incoming(cloud_events=False, value_deserializer="cloudevents"),
            '"cloudevents" means CloudEvents only',
        ),
    ],
)
def test_what_makes_no_sense_is_one_problem(tables: Any, said: str) -> None:
    assert said in only_problem(tables)


def test_what_an_incoming_channel_finds() -> None:
    assert loaded(incoming()).incoming["orders"].cloud_events
    assert not loaded(incoming(cloud_events=False)).incoming["orders"].cloud_events
    assert (
        not loaded({"kafka": {"cloud_events": False}, **incoming()}).incoming["orders"].cloud_events
    )
