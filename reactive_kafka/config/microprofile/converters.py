"""What a value of SmallRye's says in ours: booleans, numbers, times, lists, Java's classes. Pure.

Each takes the text of a property and returns what a TOML file would say; a ValueError says what is
allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from reactive_kafka.config.kinds import INT64_MAX, did_you_mean, names_an_object, show_duration
from reactive_kafka.formats.format_names import FORMATS

Converter = Callable[[str], Any]

_TRUE = ("true", "yes", "y", "on", "1")
_FALSE = ("false", "no", "n", "off", "0")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_SCHEME = re.compile(r"(?:^|,)\s*([A-Za-z_]+)://")
_ADDRESS = re.compile(r"(?:[A-Za-z_]+://)?\[?([0-9A-Za-z._%:-]+?)\]?:([0-9]+)")
_ITEM = re.compile(r"(?:\\.|[^,\\])+", re.DOTALL)
_JAVA_CLASS = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)+")
_ADAPTER = re.compile(r"(Des|S)erializer$")

_KAFKA = "org.apache.kafka.common.serialization."
_QUARKUS = "io.quarkus.kafka.client.serialization."
_VERTX = "io.vertx.kafka.client.serialization."
_CONFLUENT = "io.confluent.kafka.serializers."
_FORMATS = {
    **{_KAFKA + name: "string" for name in ("String", "UUID")},
    **{_KAFKA + name: "bytes" for name in ("ByteArray", "Bytes", "ByteBuffer")},
    _KAFKA + "Integer": "int32",
    _KAFKA + "Long": "int64",
    _KAFKA + "Float": "float32",
    _KAFKA + "Double": "float64",
    **{_QUARKUS + name: "json" for name in ("ObjectMapper", "JsonObject", "JsonArray", "Jsonb")},
    **{_VERTX + name: "json" for name in ("JsonObject", "JsonArray")},
    **{package + "Buffer": "bytes" for package in (_QUARKUS, _VERTX)},
    _CONFLUENT + "KafkaAvro": "avro",
    _CONFLUENT + "protobuf.KafkaProtobuf": "protobuf",
    _CONFLUENT + "json.KafkaJsonSchema": "json-schema",
    "io.cloudevents.kafka.CloudEvent": "cloudevents",
}
"""Java's class, without De- or Serializer -> the format."""
_REFUSED = {
    _KAFKA
    + "Short": "there is no format of two bytes; leave it out and write a module:function in TOML",
    _KAFKA + "Void": "what is never there needs no format; leave it out",
    _KAFKA
    + "List": "there is no format of lists; leave it out and write a module:function in TOML",
}
_OF_APICURIO = "io.apicurio.registry."
_SUBJECTS = {"TopicName": "topic", "RecordName": "record", "TopicRecordName": "topic-record"}


def text(raw: str) -> str:
    """Any text, as it is."""
    return raw


def servers(raw: str) -> str:
    """Addresses of brokers as Kafka's clients take them: PLAINTEXT://broker:9092, [::1]:9092,
    several with commas.

    The clients ignore what stands before the host: ``security.protocol`` is the protocol. They skip
    empty addresses. A text that they would refuse is returned as it is, for the error that
    addresses have in every file.
    Source: Kafka's ClientUtils.parseAndValidateAddresses, and the pattern of Utils.getHost.
    """
    found = []
    for item in raw.split(","):
        if not item.strip():
            continue
        match = _ADDRESS.fullmatch(item.strip())
        if match is None:
            return raw
        host, port = match.groups()
        found.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return ",".join(found) or raw


def other_protocols(raw: str, protocol: str) -> list[str]:
    """The protocols before addresses that are not *protocol*, which is the one that counts."""
    named = dict.fromkeys(one.upper() for one in _SCHEME.findall(raw))
    return [one for one in named if one != protocol.strip().upper()]


def boolean(raw: str) -> bool:
    """MicroProfile's words for true and false. Java takes any other word for false; here it is a
    mistake.
    """
    word = raw.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError(
        f"expected true or false ({', '.join(_TRUE[1:])} and {', '.join(_FALSE[1:])} are read, too)"
    )


def integer(raw: str) -> int:
    """A whole number of Java's."""
    if not _INTEGER.fullmatch(raw.strip()):
        raise ValueError("expected a whole number")
    return int(raw)


def milliseconds(raw: str) -> str:
    """A time above 0."""
    if (number := _milliseconds(raw)) <= 0:
        raise ValueError("expected a whole number of milliseconds, above 0")
    return show_duration(number / 1000)


def limit_ms(raw: str) -> str:
    """A time that 0, or less, turns off."""
    return show_duration(max(0, _milliseconds(raw)) / 1000)


def _milliseconds(raw: str) -> int:
    try:
        return integer(raw)
    except ValueError:
        raise ValueError("expected a whole number of milliseconds") from None


def no_limit(raw: str) -> int:
    """A bound that 0, or less, lifts."""
    number = integer(raw)
    return number if number > 0 else 2**31 - 1


def names(raw: str) -> list[str]:
    r"""A list of MicroProfile's: commas between, ``\,`` for a comma, blanks around and empty items
    dropped.
    """
    items = [re.sub(r"\\(.)", r"\1", item).strip() for item in _ITEM.findall(raw)]
    return [item for item in items if item]


def order(raw: str) -> str:
    """What ``ordered`` says, in any case."""
    word = raw.strip().lower()
    if word not in ("key", "partition"):
        near = did_you_mean(word, ("key", "partition"))
        raise ValueError(
            "expected key or partition; without it channels are unordered" + _meant(near)
        )
    return word


def _meant(near: str | None) -> str:
    return f"; did you mean {near!r}?" if near else ""


def assigned(raw: str, topic: str) -> list[str]:
    """``[topic:]partition[:offset]``, several with commas, as ``assign`` has them; *topic* where
    none is named.
    """
    found = [":".join(_partition(item.split(":"), topic)) for item in names(raw)]
    if not found:
        raise ValueError("expected at least one partition")
    return found


def _partition(parts: list[str], topic: str) -> list[str]:
    if len(parts) == 1 or (len(parts) == 2 and parts[0].isdigit()):
        # 0 is a partition, and 0:5 one with an offset.
        parts = [topic, *parts]
    if len(parts) not in (2, 3) or not all(_INTEGER.fullmatch(part) for part in parts[1:]):
        raise ValueError(
            "expected [topic:]partition[:offset], several with commas: orders:0:100, orders:1"
        )
    return parts


def java_format(raw: str) -> str:
    """The format that a serializer or deserializer of Java's writes or reads; formats of ours are
    taken, too.
    """
    name = raw.strip()
    if name in FORMATS or names_an_object(name):
        return name
    adapted = _ADAPTER.sub("", name)
    if adapted != name and adapted in _FORMATS:
        return _FORMATS[adapted]
    if instead := _REFUSED.get(adapted):
        raise ValueError(instead)
    if name.startswith(_OF_APICURIO):
        raise ValueError(
            "Apicurio's own wire format is not read; use its Confluent API, and Confluent's classes"
        )
    if not _JAVA_CLASS.fullmatch(name):
        raise ValueError(
            f"expected a serializer or deserializer of Java's, or {', '.join(FORMATS)}"
        )
    near = did_you_mean(
        name, [one + end for one in _FORMATS for end in ("Serializer", "Deserializer")]
    )
    if near and near.rpartition(".")[0] == name.rpartition(".")[0]:
        raise ValueError(f"there is no such class{_meant(near)}")
    raise ValueError(
        "a class of your own cannot be loaded here; leave it out: JSON goes into the type that the handler is annotated"
        " with (or name a module:function)"
    )


def subject(raw: str) -> str:
    """A strategy of Confluent's for the names of subjects."""
    found = _SUBJECTS.get(raw.strip().rpartition(".")[2].removesuffix("Strategy"))
    if found is None:
        raise ValueError(f"expected one of {', '.join(f'{name}Strategy' for name in _SUBJECTS)}")
    return found


def scalar(raw: str) -> str | int | bool:
    """A property of Kafka's client: a whole number, true or false, else the text itself."""
    word = raw.strip()
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    number = int(word) if _INTEGER.fullmatch(word) else None
    return raw if number is None or abs(number) > INT64_MAX else number
