"""Makes the JSON Schema of a configuration file, for ``reactive-kafka schema``. Pure."""

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
from reactive_kafka.config.json_schema.spellings import ANY, DOT, WITHIN, Definitions, Spelling
from reactive_kafka.config.json_schema.value_schemas import (
    ANY_TEXT,
    DOTTED,
    REFERENCE,
    Schema,
    either,
)
from reactive_kafka.config.keys import (
    KAFKA_SPELLINGS,
    NAMED_SECTIONS,
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
    "topics": "Topics that `reactive-kafka topics apply` creates, by name.",
    "limits": "Limits that incoming channels share, by name.",
    "memory": "Channels between handlers, without a topic, by name.",
    "kafka": "Brokers, raw client properties, and defaults of all channels.",
    "spark": "The Spark session.",
    "http": "Health, metrics and the status page.",
}


def config_schema() -> dict[str, Any]:
    """Return the schema.

    It accepts for each key what the loader accepts. It does not find contradictions between keys.
    """
    definitions = Definitions()
    sections: dict[str, Schema] = {}
    for name, section in (NAMED_SECTIONS | PLAIN_SECTIONS).items():
        schema = {"title": f"[{section.title}]", **_table_of(name, section, definitions)}
        about = {"description": _ABOUT[name]} if name in _ABOUT else {}
        if name in PLAIN_SECTIONS:
            sections[name] = definitions.ref(name, about | schema)
        else:
            channel = definitions.ref(f"{name}.X", schema)
            sections[name] = {**about, "type": ["object", "null"], "additionalProperties": channel}
    with_hyphens = {
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
        "patternProperties": with_hyphens,
        "additionalProperties": False,
        "$defs": definitions.schemas,
    }


def _table_of(name: str, section: Section, definitions: Definitions) -> dict[str, Any]:
    """Return the schema of a section, or of one channel."""
    spellings = list(_spellings(name, section, definitions))
    more_patterns: dict[str, Schema] = {}
    for table, kind in section.free.items():
        routes = _routes(f"{name}.{table}", kind, definitions)
        or_empty = {**routes, "type": ["object", "null"]}
        spellings.append(Spelling.of(table.split("_"), WITHIN, or_empty, table))
        flat = rf"^{table.replace('_', '[_-]')}\.{DOTTED}$"
        more_patterns[flat] = routes["patternProperties"][f"^{DOTTED}$"]
    for table, kind in section.open.items():
        values = _open_table(f"{name}.{table}", kind, definitions)
        or_empty = {**values, "type": ["object", "null"]}
        spellings.append(Spelling.of(table.split("_"), WITHIN, or_empty, table))
        more_patterns[rf"^{table}\..+$"] = values["additionalProperties"]
    for table, kind in section.headers.items():
        values = _header_table(f"{name}.{table}", kind, definitions)
        or_empty = {**values, "type": ["object", "null"]}
        spellings.append(Spelling.of(table.split("_"), WITHIN, or_empty, table))
        flat = rf"^{table.replace('_', '[_-]')}\..+$"
        more_patterns[flat] = values["additionalProperties"]
    found = definitions.table(name, spellings, more_patterns)
    if section is SPARK:
        found["properties"]["conf"] = _spark_conf(definitions)
    return found


def _spellings(name: str, section: Section, definitions: Definitions) -> Iterator[Spelling]:
    """Yield the spellings of each key of a section, with its tables and raw properties."""
    for key_name, key in section.keys.items():
        table, _, own_name = key_name.rpartition(".")
        about = f"{key.doc} Takes {key.kind.expects}."
        value = definitions.ref(f"{name}.{key_name}", _value(key.kind, about, key.default))
        kafka_names = [kafka for kafka, meant in KAFKA_SPELLINGS.items() if meant == own_name]
        spellings = [
            Spelling.of(own_name.split("_"), WITHIN, value, own_name),
            *(Spelling.of(kafka.split("."), DOT, value) for kafka in kafka_names),
        ]
        yield from _placed(_with_files(spellings, key.kind, definitions), table)
    if "commit_interval" in section.keys:
        yield from _property_spellings(AUTO_COMMIT_INTERVAL, definitions)
    for table, sides in {"": section.sides, **section.clients}.items():
        for prop in PROPERTIES:
            if prop.sides & sides and prop.kind.json is not False:
                yield from _placed(_property_spellings(prop, definitions), table)


def _placed(spellings: list[Spelling], table: str) -> list[Spelling]:
    """Return the spellings of keys inside a table, or as they are if *table* is empty."""
    return [spelling.inside(table) for spelling in spellings] if table else spellings


def _property_spellings(prop: Property, definitions: Definitions) -> list[Spelling]:
    """Return the spellings of a raw property: Kafka's names and aiokafka's."""
    about = f"`{prop.kafka}`"
    if prop.name != prop.kafka:
        about += f", aiokafka's `{prop.name}`"
    if prop.sides != BOTH:
        about += f" of {''.join(prop.sides)}s"
    value = definitions.ref(
        f"client.{prop.kafka}", _value(prop.kind, f"{about}. Takes {prop.kind.expects}.")
    )
    offered = (prop.kafka, prop.name)
    also = [spelling for spelling, meant in KAFKA_SPELLINGS.items() if find(meant) is prop]
    spellings = []
    for name in dict.fromkeys(map(form, (*offered, *prop.also, *also))):
        names = [offer for offer in offered if form(offer) == name]
        spellings.append(Spelling.of(name.split("_"), ANY, value, *names))
    return _with_files(spellings, prop.kind, definitions)


def _with_files(
    spellings: list[Spelling], kind: Kind[Any], definitions: Definitions
) -> list[Spelling]:
    """Add the keys that name a file with the value. Editors are offered those of secrets only."""
    if not kind.free:
        return spellings
    file = definitions.ref("file", _FILE)
    with_files = list(spellings)
    for spelling in spellings:
        names = [f"{name}_file" for name in spelling.names if is_secret(name) and "." not in name]
        with_files.append(spelling.in_a_file(file, *names))
    return with_files


def _value(kind: Kind[Any], about: str, default: Any = None) -> Schema:
    """Return the schema of a key's values. A reference to a variable is allowed, too."""
    annotations = {"description": about}
    if default is not None:
        annotations["default"] = default
    if kind.json is ANY_TEXT:
        return annotations | ANY_TEXT
    if isinstance(kind.json, bool):
        types = [{"type": _JSON_TYPES[each]} for each in kind.native if each in _JSON_TYPES]
        allowed: list[Any] = types or [True]
    else:
        allowed = kind.json.get("anyOf", [kind.json])
    return {**annotations, "anyOf": [*allowed, REFERENCE]}


_AFTER_RETRIES = f"Let in-place retries go before the route. Takes {BOOLEAN.expects}."


def _routes(name: str, kind: Kind[str], definitions: Definitions) -> dict[str, Any]:
    """Return the schema of a table whose keys are dotted Python names, or nested parts of them."""
    value = definitions.ref(f"{name}.X", _value(kind, f"Takes {kind.expects}."))
    keys = {
        "^strategy$": value,
        "^after[_-]retries$": definitions.ref(
            f"{name}.after_retries", _value(BOOLEAN, _AFTER_RETRIES)
        ),
    }
    route = {
        "type": "object",
        "patternProperties": keys,
        "minProperties": 1,
        "additionalProperties": False,
    }
    nested = {
        "type": "object",
        "patternProperties": {
            f"^{DOTTED}$": either(value, route, {"$ref": f"#/$defs/{name}"}),
        },
        "additionalProperties": False,
    }
    definitions.ref(name, {"minProperties": 1, **nested})
    return nested


def _open_table(name: str, kind: Kind[str], definitions: Definitions) -> dict[str, Any]:
    """Return the schema of a table with any names of Kafka's, which may be nested at their dots."""
    about = f"A config of the topic, by Kafka's name. Takes {kind.expects}."
    value = definitions.ref(f"{name}.X", _value(kind, about))
    nested = {"type": "object", "additionalProperties": either(value, {"$ref": f"#/$defs/{name}"})}
    definitions.ref(name, {"minProperties": 1, **nested})
    return nested


def _header_table(name: str, kind: Kind[Any], definitions: Definitions) -> dict[str, Any]:
    """Return the schema of a table with names of headers, which may be nested at their dots."""
    about = f"A header that records must have to be handled. Takes {kind.expects}."
    value = definitions.ref(f"{name}.X", _value(kind, about))
    nested = {"type": "object", "additionalProperties": either(value, {"$ref": f"#/$defs/{name}"})}
    definitions.ref(name, {"minProperties": 1, **nested})
    return nested


def _spark_conf(definitions: Definitions) -> Schema:
    """Return the schema of Spark's own properties: any names except those with a key of ours."""
    value = {"type": ["string", "number", "boolean"]}
    nested = {"$ref": "#/$defs/spark.conf.nested"}
    definitions.ref(
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
