"""Converts values of SmallRye's into ours: booleans, numbers, times, lists, Java's classes. Pure.

Each function takes the text of a property and returns what a TOML file would have. It raises
ValueError, which says what is allowed.
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
"""A class of Java's without Deserializer or Serializer -> the format."""
_WRITE_FUNCTION = "leave it out and write a module:function in TOML; there is no format"
_REFUSED = {
    f"{_KAFKA}Short": f"{_WRITE_FUNCTION} of two bytes",
    f"{_KAFKA}Void": "leave it out; what is always null needs no format",
    f"{_KAFKA}List": f"{_WRITE_FUNCTION} of lists",
}
_OF_APICURIO = "io.apicurio.registry."
_SUBJECTS = {"TopicName": "topic", "RecordName": "record", "TopicRecordName": "topic-record"}


def text(raw: str) -> str:
    """Return the text as it is."""
    return raw


def servers(raw: str) -> str:
    """Return ``host:port`` for addresses such as ``PLAINTEXT://broker:9092`` and ``[::1]:9092``.

    Kafka's clients ignore the protocol before the host, because ``security.protocol`` decides, and
    they skip empty addresses. A text that they would refuse is returned as it is: our own check
    then has the same error as for every file.
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
    """Return the protocols before addresses that differ from *protocol*, which is in effect."""
    named = dict.fromkeys(scheme.upper() for scheme in _SCHEME.findall(raw))
    return [scheme for scheme in named if scheme != protocol.strip().upper()]


def boolean(raw: str) -> bool:
    """Read MicroProfile's words for true and false.

    Java takes any other word for false. Here it is an error.
    """
    word = raw.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError(
        f"expected true or false ({', '.join(_TRUE[1:])} and {', '.join(_FALSE[1:])} are read, too)"
    )


def integer(raw: str) -> int:
    """Read a whole number."""
    if not _INTEGER.fullmatch(raw.strip()):
        raise ValueError("expected a whole number")
    return int(raw)


def milliseconds(raw: str) -> str:
    """Read a time above 0."""
    number = _milliseconds(raw)
    if number <= 0:
        raise ValueError("expected a whole number of milliseconds, above 0")
    return show_duration(number / 1000)


def limit_ms(raw: str) -> str:
    """Read a time limit. 0 or less turns it off."""
    return show_duration(max(0, _milliseconds(raw)) / 1000)


def _milliseconds(raw: str) -> int:
    try:
        return integer(raw)
    except ValueError:
        raise ValueError("expected a whole number of milliseconds") from None


def no_limit(raw: str) -> int:
    """Read a limit. 0 or less means that there is none."""
    number = integer(raw)
    return number if number > 0 else 2**31 - 1


def names(raw: str) -> list[str]:
    r"""Read a list of MicroProfile's, with commas; ``\,`` is a comma inside of an item.

    Blanks around items and empty items are dropped.
    """
    items = [re.sub(r"\\(.)", r"\1", item).strip() for item in _ITEM.findall(raw)]
    return [item for item in items if item]


def order(raw: str) -> str:
    """Read the value of ``ordered``, in any case."""
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
    """Read ``[topic:]partition[:offset]``, several with commas, for ``assign``.

    *topic* is the topic of partitions that name none.
    """
    found = [":".join(_partition(item.split(":"), topic)) for item in names(raw)]
    if not found:
        raise ValueError("expected at least one partition")
    return found


def _partition(parts: list[str], topic: str) -> list[str]:
    if len(parts) == 1 or (len(parts) == 2 and parts[0].isdigit()):
        # "0" is a partition, and "0:5" is one with an offset.
        parts = [topic, *parts]
    if len(parts) not in (2, 3) or not all(_INTEGER.fullmatch(part) for part in parts[1:]):
        raise ValueError(
            "expected [topic:]partition[:offset], several with commas: orders:0:100, orders:1"
        )
    return parts


def java_format(raw: str) -> str:
    """Return the format of a serializer or deserializer of Java's, or a format of ours."""
    name = raw.strip()
    if name in FORMATS or names_an_object(name):
        return name
    adapted = _ADAPTER.sub("", name)
    if adapted != name and adapted in _FORMATS:
        return _FORMATS[adapted]
    if adapted in _REFUSED:
        raise ValueError(_REFUSED[adapted])
    if name.startswith(_OF_APICURIO):
        raise ValueError(
            "use Confluent's classes and Apicurio's Confluent API; its own wire format is not read"
        )
    if not _JAVA_CLASS.fullmatch(name):
        raise ValueError(
            f"expected a serializer or deserializer of Java's, or {', '.join(FORMATS)}"
        )
    known = [package + end for package in _FORMATS for end in ("Serializer", "Deserializer")]
    near = did_you_mean(name, known)
    if near and near.rpartition(".")[0] == name.rpartition(".")[0]:
        raise ValueError(f"there is no such class{_meant(near)}")
    raise ValueError(
        "leave it out, or name a module:function: a class of your own cannot be loaded here, and "
        "JSON goes into the type that the handler is annotated with"
    )


def subject(raw: str) -> str:
    """Read a strategy of Confluent's for the names of subjects."""
    found = _SUBJECTS.get(raw.strip().rpartition(".")[2].removesuffix("Strategy"))
    if found is None:
        raise ValueError(f"expected one of {', '.join(f'{name}Strategy' for name in _SUBJECTS)}")
    return found


def scalar(raw: str) -> str | int | bool:
    """Read a property of Kafka's client: a whole number, true or false, else the text itself."""
    word = raw.strip()
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    if _INTEGER.fullmatch(word) and abs(int(word)) <= INT64_MAX:
        return int(word)
    return raw
