"""The JSON Schema of the configuration says of each key what the loader says."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from reactive_kafka.config.client_properties import PROPERTIES
from reactive_kafka.config.collect import Collected
from reactive_kafka.config.json_schema.config_schema import config_schema
from reactive_kafka.config.keys import KAFKA_SPELLINGS, NAMED_SECTIONS, PLAIN_SECTIONS, Section
from reactive_kafka.config.kinds import Kind
from reactive_kafka.config.layers import Problems, expanded, of_mapping
from tests.config.literals import configurations
from tests.config.loading import loaded

SECTIONS = NAMED_SECTIONS | PLAIN_SECTIONS
ENVIRON = {"A": "5", "B": "orders"}


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(config_schema())


def is_valid(tables: Any) -> bool:
    return bool(validator().is_valid(tables))


def refusals(tables: Any) -> list[str]:
    """What the loader says of the keys, each by itself; a file of a secret is always there."""
    problems = Problems()
    given = Collected(problems, _secret)
    given.add(expanded(of_mapping("a.toml", tables), ENVIRON))
    return problems.report()


def _secret(path: str) -> str:
    """What stands in a file: what its path says."""
    if not path:
        raise ValueError("no file")
    return path.removeprefix("/run/")


def test_it_is_a_schema_of_the_draft_that_it_names() -> None:
    schema = config_schema()
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    Draft202012Validator.check_schema(schema)


def test_every_reference_leads_to_a_definition_and_none_is_left_over() -> None:
    schema = config_schema()
    named = set(re.findall(r'"\$ref": "#/\$defs/([^"]+)"', str(schema).replace("'", '"')))
    assert named == schema["$defs"].keys()


# -- what stands in the repository


def test_every_configuration_of_docs_examples_and_tests_that_loads_is_valid() -> None:
    loads, broken = list[tuple[str, Any]](), list[Any]()
    for place, tables in configurations():
        if refusals(tables):
            broken.append(tables)
        else:
            loads.append((place, tables))
    assert [(place, tables) for place, tables in loads if not is_valid(tables)] == []
    assert len(loads) > 250
    assert sum(not is_valid(tables) for tables in broken) > 0.9 * len(broken) > 30


# -- values

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
SECRETS = JAAS + "-----BEGIN CERTIFICATE-----"
PLAIN: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        5,
        70000,
        2**31,
        2**63,
        0.0,
        2.5,
        -0.5,
        10**10,
        "",
        " ",
        "5",
        "true",
        "orders",
    ),
    *(
        "5s",
        " 5 s ",
        "0s",
        "0.0ms",
        "1.5h",
        "-5s",
        "5 days",
        "64KiB",
        "0.5B",
        "0MB",
        "1.5 kB",
        "64kib",
    ),
    *(
        [],
        {},
        [1],
        [None],
        ["a"],
        ["a", "a"],
        ["a", "b"],
        "a, b",
        "a,,b",
        ["a "],
        {"x": 1},
        [["a"]],
        {"x": {}},
    ),
    *("a:b", "a.b:c.D", "módulo:función", "a:", "9a:b", "a.b", "header:x", "header:", "header: y"),
    *(
        "t:0",
        "t:0:100",
        " t:0:-1 ",
        ["t:0", "t:1@2026-11-21T00:00:00Z"],
        "t:x",
        ["t:0:1:2"],
        ".",
        "..",
    ),
    *(
        "host:9092",
        "a:1,b:2",
        ["a:1", "b:2"],
        "[::1]:9092",
        "a b:1",
        "embedded",
        "a_b.c-d.",
        "höst:1",
        "a:b:c",
    ),
    *(
        "orders_retry_10000",
        ["x_10", "y_20"],
        "x_",
        ["x"],
        "local[2]",
        "local [2]",
        "local[0]",
        "spark://h:7077",
    ),
    *(
        "sc://h",
        "sc://h:15002/;use_ssl=true",
        "sc:/h",
        "sqlite:///x.db",
        "file:///a",
        "sqlite",
        "tökén",
        "to ken",
    ),
    *(
        "/a.pem",
        "/a.JKS",
        JAAS,
        SECRETS,
        ["range", "sticky"],
        ["cooperative-sticky"],
        "range,roundrobin",
    ),
    *("${A}", "x${A}", ["${A}"], "${A:-x}", "${", "$${"),
)


def kinds() -> dict[str, Kind[Any]]:
    """What is allowed, in words -> the kind; each once."""
    every = [key.kind for section in SECTIONS.values() for key in section.keys.values()]
    every += [prop.kind for prop in PROPERTIES]
    return {kind.expects: kind for kind in every}


def places() -> dict[str, tuple[str, str]]:
    """Kind, in words -> a section and a key that takes it."""
    found = {}
    for title, section in SECTIONS.items():
        for name, key in section.keys.items():
            if "." not in name:
                found.setdefault(key.kind.expects, (title, name))
        for prop in PROPERTIES:
            if prop.sides & section.sides:
                found.setdefault(prop.kind.expects, (title, prop.name))
        for name, key in section.keys.items():
            found.setdefault(key.kind.expects, (title, name))
    return found


def examples_of(kind: Kind[Any]) -> list[Any]:
    """The values that its own words name."""
    return re.findall(r'"([^"]*)"', kind.expects)


def tables_of(section: str, path: str | tuple[str, ...], value: Any) -> dict[str, Any]:
    """Tables with one key of a section, or of a channel called x."""
    parts = path.split(".") if isinstance(path, str) else path
    for part in reversed(parts):
        value = {part: value}
    return {section: {"x": value} if section in NAMED_SECTIONS else value}


@pytest.mark.parametrize("expects", kinds())
def test_a_value_is_valid_if_the_loader_takes_it(expects: str) -> None:
    kind = kinds()[expects]
    section, name = places()[expects]
    for value in (*PLAIN, *examples_of(kind)):
        tables = tables_of(section, name, value)
        refused = refusals(tables)
        assert is_valid(tables) or refused, value
        if refused and is_valid(tables):
            assert _why_not_said(kind, value), (value, refused)


def _why_not_said(kind: Kind[Any], value: Any) -> str | None:
    """What a JSON Schema cannot say of a value that the loader refuses."""
    texts = value if isinstance(value, list) else [value]
    if any(isinstance(text, str) and "${" in text for text in texts):
        return "what it will stand for"
    if isinstance(value, float) and value.is_integer():
        return "1.0 is an integer to JSON Schema"
    reasons = {
        "a regular expression": "whether it is one",
        "the URL of a store": "which stores are installed",
        "a size": "whether it is a whole number of bytes",
        "a PlainLoginModule": "what its options are",
    }
    return next((why for start, why in reasons.items() if kind.expects.startswith(start)), None)


# -- keys


def spelled_paths(section: Section) -> list[tuple[str, Kind[Any]]]:
    """Each key of a section as in the docs, with its kind: ours, Kafka's and aiokafka's names."""
    found = [(name, key.kind) for name, key in section.keys.items()]
    tables = {"": section.sides, **{f"{table}.": sides for table, sides in section.clients.items()}}
    for table, sides in tables.items():
        of_side = [prop for prop in PROPERTIES if prop.sides & sides]
        found += [
            (table + name, prop.kind)
            for prop in of_side
            for name in (prop.kafka, prop.name, *prop.also)
        ]
        spelled = [
            (table + name, section.keys.get(table + meant))
            for name, meant in KAFKA_SPELLINGS.items()
        ]
        found += [(name, key.kind) for name, key in spelled if key is not None]
    return found


PATHS = [
    (title, name, kind)
    for title, section in SECTIONS.items()
    for name, kind in spelled_paths(section)
]


def good_value(kind: Kind[Any]) -> Any:
    """What the loader takes; None if that is given in code."""
    for value in (*examples_of(kind), *PLAIN):
        try:
            kind.parse(value)
        except ValueError:
            continue
        return value
    return None


@st.composite
def written_keys(draw: st.DrawFn) -> tuple[str, tuple[str, ...], Any]:
    """A key with other separators, tables where there may be none, letters lost, or a file of its
    own.
    """
    title, name, kind = draw(st.sampled_from(PATHS))
    words = re.split(r"([._])", name)
    is_file = draw(st.integers(0, 4)) == 0
    if is_file:
        words += ["_", "file"]
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(words) // 2)) * 2
        words[at] = draw(
            st.sampled_from([words[at][:-1], words[at] + "x", "", "topic", "ms", words[at].upper()])
        )
    if draw(st.booleans()):
        words[1::2] = [draw(st.sampled_from([joint, ".", "_", "-", "/"])) for joint in words[1::2]]
    path = "".join(words)
    if draw(st.booleans()):
        path = path.replace(".", "/")
    return (
        title,
        tuple(path.split("/")),
        f"/run/{good_value(kind)}" if is_file else good_value(kind),
    )


@settings(max_examples=250, deadline=None)
@given(written_keys())
def test_a_key_is_valid_if_the_loader_knows_it_however_it_is_written(
    written: tuple[str, tuple[str, ...], Any],
) -> None:
    tables = tables_of(*written)
    refused = refusals(tables)
    assert is_valid(tables) == (not refused), refused


def _meant(schema: dict[str, Any], node: dict[str, Any]) -> list[dict[str, Any]]:
    """What a name may stand for: a value, a table, or both."""
    return [schema["$defs"][one["$ref"].rpartition("/")[2]] for one in node.get("anyOf", [node])]


@pytest.mark.parametrize("title", SECTIONS)
def test_every_key_is_offered_by_its_name_and_described(title: str) -> None:
    schema = config_schema()
    for name, key in SECTIONS[title].keys.items():
        node = schema["$defs"][f"{title}.X" if title in NAMED_SECTIONS else title]
        *tables, own = name.split(".")
        for table in tables:
            node = next(
                one for one in _meant(schema, node["properties"][table]) if "properties" in one
            )
        # Before a table of the same name.
        node = _meant(schema, node["properties"][own])[0]
        assert key.doc in node["description"]
        assert node.get("default") == key.default


@pytest.mark.parametrize(
    "name", ["session.timeout.ms", "session_timeout_ms", "sasl_plain_password_file", "retry"]
)
def test_the_usual_names_of_raw_properties_are_offered_as_well(name: str) -> None:
    assert name in config_schema()["$defs"]["incoming.X"]["properties"]


@pytest.mark.parametrize("value", [1, 5_000, 0, -1, "5000", "5s", 2.5, None, 2**31])
@pytest.mark.parametrize(
    "name", ["auto.commit.interval.ms", "auto_commit_interval_ms", "auto-commit-interval-ms"]
)
@pytest.mark.parametrize("section", ["kafka", "incoming", "outgoing"])
def test_the_interval_of_auto_commits_is_valid_where_the_loader_takes_it(
    section: str, name: str, value: Any
) -> None:
    tables = {section: {name: value} if section == "kafka" else {"x": {name: value}}}
    assert is_valid(tables) == (not refusals(tables))
    assert is_valid(tables) == (value in (1, 5_000) and section != "outgoing")


# -- whole configurations


@st.composite
def written_tables(draw: st.DrawFn) -> dict[str, Any]:
    """Some keys of some sections, most of them with values that fit."""
    tables: dict[str, Any] = {}
    for title, name, kind in draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=6)):
        value = draw(st.sampled_from(PLAIN)) if draw(st.integers(0, 9)) == 0 else good_value(kind)
        parts = [title, *(["x"] if title in NAMED_SECTIONS else [])]
        parts += name.split(".") if draw(st.booleans()) else [name.replace("_", "-")]
        inner = tables
        for part in parts[:-1]:
            inner = inner.setdefault(part, {})
            assume(isinstance(inner, dict))
        inner[parts[-1]] = value
    routes = st.dictionaries(
        st.sampled_from(["ValueError", "a.B", "a"]),
        st.sampled_from(
            ["ignore", "a:b", {"C": "fail"}, {"strategy": "fail", "after_retries": True}]
        ),
    )
    spark = st.dictionaries(
        st.sampled_from(["spark.x", "spark", "a", "spark.master"]),
        st.sampled_from([1, "x", {"y": True}]),
    )
    further = {
        "kafka": st.fixed_dictionaries({"failure_routes": routes}),
        "spark": st.fixed_dictionaries({"conf": spark}),
        "incoming": st.none(),
        "$schema": st.just("x.json"),
    }
    for title, made in further.items():
        if title not in tables and draw(st.integers(0, 3)) == 0:
            tables[title] = draw(made)
    return tables


@settings(max_examples=200, deadline=None)
@given(written_tables())
def test_what_the_loader_takes_is_valid(tables: dict[str, Any]) -> None:
    assert is_valid(tables) or refusals(tables)


@pytest.mark.parametrize(
    "tables",
    [
        {
            "incoming": {
                "x": {
                    "retry": {"backoff": "1s", "backoff.ms": 5, "max-attempts": 2},
                    "retry.backoff.ms": 5,
                }
            }
        },
        {"incoming": {"x": {"retry": {"backoff": {"ms": 100}}, "retry.backoff": "1s"}}},
        {"incoming": {"x": {"key": {"deserializer": "json"}, "group": {"id": "g"}}}},
        {
            "outgoing": {
                "x": {"compression": {"type": "gzip"}, "linger.ms": 5, "compression-type": "gzip"}
            }
        },
        {
            "incoming": {
                "x": {"failure-routes": {"package": {"module.Error": "ignore"}, "Ärger": "a:b"}}
            }
        },
        {
            "incoming": {
                "x": {"failure-routes": {"a.B": {"strategy": "ignore", "after-retries": True}}}
            }
        },
        {
            "incoming": {
                "x": {
                    "failure_routes": {
                        "A": {"strategy": "ignore"},
                        "b": {"B": {"strategy": "fail"}},
                    }
                }
            }
        },
        {
            "incoming": {
                "x": {
                    "retry": {"never": "ValueError, a.B", "only": ["KeyError"], "max_attempts": 2}
                }
            }
        },
        {
            "incoming": {
                "x": {"failure_routes.ValueError": "ignore", "dead_letter_queue": {"acks": -1}}
            }
        },
        {"spark": {"conf": {"spark": {"master": {"x": 1}}, "a.b": False}, "master": "local"}},
        {
            "kafka": None,
            "http": {},
            "incoming": {"x": None, "y": {"spark": None}},
            "$schema": "schema.json",
        },
        {"http": {"token": {"file": "/run/token"}, "port": "${A}"}},
    ],
)
def test_odd_ways_to_write_something_are_taken(tables: dict[str, Any]) -> None:
    assert refusals(tables) == []
    assert is_valid(tables)


@pytest.mark.parametrize(
    "tables",
    [
        {"kafak": {}},
        {"$schema": 5},
        {"incoming": {"x": {"session": {}}}},
        {"incoming": {"x": {"session": {"timeout": {}}}}},
        {"incoming": {"x": {"retry": {"backoff": {}}}}},
        {"incoming": {"x": {"max.in.flight": 5}}},
        {"incoming": {"x": {"retry_backoff": "1s"}}},
        {"incoming": {"x": {"linger.ms": 5}}},
        {"incoming": {"x": {"retry": "${A}"}}},
        {"incoming": {"x": {"failure_routes": {"Value-Error": "ignore"}}}},
        {"incoming": {"x": {"failure_routes": {"a": {}}}}},
        {"incoming": {"x": {"failure_routes": {"a": {"strategy": "fail", "after_retries": 1}}}}},
        {"incoming": {"x": {"retry": {"jitter": 1.5}}}},
        {"incoming": {"x": {"retry": {"never": ["no name"]}}}},
        {"incoming": [{"topic": "x"}]},
        {"incoming": {"x": {"topic": None}}},
        {"kafka": {"topic": "x"}},
        {"outgoing": {"x": {"max_in_flight_file": "a"}}},
        {"spark": {"conf": {"spark.master": "local"}}},
        {"spark": {"conf": {"spark": {"remote": "sc://h"}}}},
        {"spark": {"conf": {"a": [1]}}},
        {"spark": {"conf.a": 1}},
        {"memory": {"x": {"group_id": "g"}}},
    ],
)
def test_what_the_loader_refuses_is_invalid(tables: dict[str, Any]) -> None:
    assert refusals(tables) != []
    assert not is_valid(tables)


def test_the_name_of_the_schema_at_the_top_is_no_setting() -> None:
    tables = {"incoming": {"orders": {"group_id": "g"}}}
    assert loaded({"$schema": "./schema.json", **tables}) == loaded(tables)
