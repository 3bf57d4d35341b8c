"""The JSON Schema of a configuration file, made from the tables of keys for ``reactive-kafka
schema``. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reactive_kafka.config.client_properties import (
    AUTO_COMMIT_INTERVAL,
    BOTH,
    PROPERTIES,
    Property,
    find,
    form,
)
from reactive_kafka.config.collect import SCHEMA, SPARK_REFUSED
from reactive_kafka.config.json_schema.spellings import ANY, DOT, WITHIN, Definitions, Way
from reactive_kafka.config.json_schema.value_schemas import (
    ANY_TEXT,
    DOTTED,
    REFERENCE,
    Schema,
    either,
)
from reactive_kafka.config.keys import (
    CHANNEL_SECTIONS,
    KAFKA_SPELLINGS,
    PLAIN_SECTIONS,
    SPARK,
    Section,
)
from reactive_kafka.config.kinds import BOOLEAN, Kind
from reactive_kafka.config.secrets import is_secret

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_JSON_TYPES = {str: "string", list: "array"}
_FILE = {
    "description": "The path of a file that holds the value.",
    "type": "string",
    "minLength": 1,
}
_ABOUT = {
    "incoming": "Channels that are read, by name.",
    "outgoing": "Channels that are written to, by name.",
    "memory": "Channels between handlers, without a topic, by name.",
    "kafka": "Brokers, raw client properties, and defaults of all channels.",
    "spark": "The Spark session.",
    "http": "Health, metrics and the status page.",
}


def config_schema() -> dict[str, Any]:
    """The schema. It takes what the loader takes of each key by itself; contradictions it cannot
    see.
    """
    known = Definitions()
    sections: dict[str, Schema] = {}
    for name, section in (CHANNEL_SECTIONS | PLAIN_SECTIONS).items():
        schema = {"title": f"[{section.title}]", **_table_of(name, section, known)}
        about = {"description": _ABOUT[name]} if name in _ABOUT else {}
        if name in PLAIN_SECTIONS:
            sections[name] = known.ref(name, about | schema)
        else:
            channel = known.ref(f"{name}.X", schema)
            sections[name] = {**about, "type": ["object", "null"], "additionalProperties": channel}
    hyphens = {
        f"^{name.replace('_', '-')}$": schema for name, schema in sections.items() if "_" in name
    }
    return {
        "$schema": DIALECT,
        "title": "Configuration of reactive_kafka",
        "type": "object",
        "properties": {
            SCHEMA: {"description": "Where this schema is.", "type": "string"},
            **sections,
        },
        "patternProperties": hyphens,
        "additionalProperties": False,
        "$defs": known.schemas,
    }


def _table_of(name: str, section: Section, known: Definitions) -> dict[str, Any]:
    """The schema of one section, or channel."""
    ways = list(_ways(name, section, known))
    further: dict[str, Schema] = {}
    for table, kind in section.free.items():
        routes = _routes(f"{name}.{table}", kind, known)
        ways.append(Way.of(table.split("_"), WITHIN, {**routes, "type": ["object", "null"]}, table))
        further[rf"^{table.replace('_', '[_-]')}\.{DOTTED}$"] = routes["patternProperties"][
            f"^{DOTTED}$"
        ]
    found = known.table(name, ways, further)
    if section is SPARK:
        found["properties"]["conf"] = _spark_conf(known)
    return found


def _ways(where: str, section: Section, known: Definitions) -> Iterator[Way]:
    """The ways to write each key of a section, those in its tables and raw properties among
    them.
    """
    for name, key in section.keys.items():
        table, _, own = name.rpartition(".")
        value = known.ref(
            f"{where}.{name}", _value(key.kind, f"{key.doc} Takes {key.kind.expects}.", key.default)
        )
        spelled = [kafka.split(".") for kafka, meant in KAFKA_SPELLINGS.items() if meant == own]
        ways = [
            Way.of(own.split("_"), WITHIN, value, own),
            *(Way.of(words, DOT, value) for words in spelled),
        ]
        yield from _placed(_with_files(ways, key.kind, known), table)
    if "commit_interval" in section.keys:
        yield from _raw(AUTO_COMMIT_INTERVAL, known)
    for table, sides in {"": section.sides, **section.clients}.items():
        for prop in PROPERTIES:
            if prop.sides & sides and prop.kind.json is not False:
                yield from _placed(_raw(prop, known), table)


def _placed(ways: list[Way], table: str) -> list[Way]:
    return [way.inside(table) for way in ways] if table else ways


def _raw(prop: Property, known: Definitions) -> list[Way]:
    """The ways to write a raw property: under Kafka's names and aiokafka's."""
    whose = "" if prop.sides == BOTH else f" of {''.join(prop.sides)}s"
    known_as = f"`{prop.kafka}`" + (
        f", aiokafka's `{prop.name}`" if prop.name != prop.kafka else ""
    )
    value = known.ref(
        f"client.{prop.kafka}", _value(prop.kind, f"{known_as}{whose}. Takes {prop.kind.expects}.")
    )
    offered = (prop.kafka, prop.name)
    also = [spelling for spelling, meant in KAFKA_SPELLINGS.items() if find(meant) is prop]
    forms = dict.fromkeys(map(form, (*offered, *prop.also, *also)))
    ways = [
        Way.of(it.split("_"), ANY, value, *(name for name in offered if form(name) == it))
        for it in forms
    ]
    return _with_files(ways, prop.kind, known)


def _with_files(ways: list[Way], kind: Kind[Any], known: Definitions) -> list[Way]:
    """And those to write the file that holds it. An editor offers that for secrets only."""
    if not kind.free:
        return ways
    file = known.ref("file", _FILE)
    secrets = [
        [f"{name}_file" for name in way.names if is_secret(name) and "." not in name]
        for way in ways
    ]
    return [*ways, *(way.in_a_file(file, *names) for way, names in zip(ways, secrets, strict=True))]


def _value(kind: Kind[Any], about: str, default: Any = None) -> Schema:
    """The schema of a key's values, a reference to a variable among them."""
    said = {"description": about} | ({} if default is None else {"default": default})
    if kind.json is ANY_TEXT:
        return said | ANY_TEXT
    if not isinstance(kind.json, bool):
        allowed = kind.json.get("anyOf", [kind.json])
    else:
        allowed = [{"type": _JSON_TYPES[each]} for each in kind.native if each in _JSON_TYPES] or [
            True
        ]
    return {**said, "anyOf": [*allowed, REFERENCE]}


_FIRST = f"Retries in place go before the route. Takes {BOOLEAN.expects}."


def _routes(name: str, kind: Kind[str], known: Definitions) -> dict[str, Any]:
    """A table whose keys are dotted names of Python, or whose tables make such names."""
    value = known.ref(f"{name}.X", _value(kind, f"Takes {kind.expects}."))
    said = {
        "strategy": value,
        "after[_-]retries": known.ref(f"{name}.after_retries", _value(BOOLEAN, _FIRST)),
    }
    own = {
        "type": "object",
        "patternProperties": {f"^{key}$": one for key, one in said.items()},
        "minProperties": 1,
    }
    either_of = either(value, {**own, "additionalProperties": False}, {"$ref": f"#/$defs/{name}"})
    nested = {
        "type": "object",
        "patternProperties": {f"^{DOTTED}$": either_of},
        "additionalProperties": False,
    }
    known.ref(name, {"minProperties": 1, **nested})
    return nested


def _spark_conf(known: Definitions) -> Schema:
    """Spark's own properties: any name, but those that ``[spark]`` has keys for."""
    value = {"type": ["string", "number", "boolean"]}
    nested = {"$ref": "#/$defs/spark.conf.nested"}
    known.ref(
        "spark.conf.nested",
        {"type": "object", "minProperties": 1, "additionalProperties": either(value, nested)},
    )
    refused = {
        name: {**nested, "description": f"Refused: {why}."} for name, why in SPARK_REFUSED.items()
    }
    inside = {name.removeprefix("spark."): schema for name, schema in refused.items()}
    of_spark = {
        "type": "object",
        "minProperties": 1,
        "properties": inside,
        "additionalProperties": either(value, nested),
    }
    return {
        "description": "Spark's own properties.",
        "type": ["object", "null"],
        "properties": refused | {"spark": either(value, of_spark)},
        "additionalProperties": either(value, nested),
    }
