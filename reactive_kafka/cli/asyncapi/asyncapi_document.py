"""The AsyncAPI 3.0 document of an application: servers, channels with their messages, operations.
Pure.

Nothing of the credentials goes in: of a client's properties only brokers, the kind of security and
the client's id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reactive_kafka.broker.kafka_connector import EMBEDDED
from reactive_kafka.cli.asyncapi.flows import Flow, MessageContent, described
from reactive_kafka.formats.annotation_schemas import Schema, schemas_of_types
from reactive_kafka.formats.format_names import FLOATS, INTEGERS

VERSION = "3.0.0"
BINDING = {"bindingVersion": "0.5.0"}
_TYPES = {
    "json": "application/json",
    "json-schema": "application/json",
    "string": "text/plain",
    "avro": "application/vnd.apache.avro",
    "protobuf": "application/vnd.google.protobuf",
    "cloudevents": "application/cloudevents+json",
}
_BINARY = "application/octet-stream"
_PLAIN: dict[str, Schema] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "binary"},
    **{name: {"type": "integer", "format": f"int{size * 8}"} for name, size in INTEGERS.items()},
    **{
        name: {"type": "number", "format": "float" if size == 4 else "double"}
        for name, size in FLOATS.items()
    },
}
_SASL = {
    "PLAIN": {"type": "plain"},
    "SCRAM-SHA-256": {"type": "scramSha256"},
    "SCRAM-SHA-512": {"type": "scramSha512"},
    "GSSAPI": {"type": "gssapi"},
    "OAUTHBEARER": {"type": "http", "scheme": "bearer"},
}


@dataclass(frozen=True, slots=True)
class Info:
    """What the document says of the application as a whole."""

    title: str
    version: str
    description: str = ""


def document(info: Info, flows: Iterable[Flow]) -> dict[str, Any]:
    """The document of what flows."""
    every = list(flows)
    contents = [content for flow in every for content in flow.contents]
    payloads, models = schemas_of_types(
        [content.asked for content in contents], "#/components/schemas/"
    )
    written = _Written()
    rest = iter(zip(contents, payloads, strict=True))
    for flow in every:
        written.add(flow, [_message(*next(rest)) for _ in flow.contents])
    about = {"description": info.description} if info.description else {}
    return {
        "asyncapi": VERSION,
        "info": {"title": info.title, "version": info.version, **about},
        "defaultContentType": "application/json",
        "servers": written.servers,
        "channels": written.channels,
        "operations": written.operations,
        "components": {"schemas": models},
    }


def _message(content: MessageContent, payload: Schema) -> tuple[str, dict[str, Any]]:
    """The name of a message, and what it is."""
    told: dict[str, Any] = {"name": content.name, "title": content.name}
    if content.about:
        told["summary"] = content.about
    if content.format is not None:
        told["contentType"] = _TYPES.get(content.format, _BINARY)
    if content.headers:
        texts = {name: {"type": "string"} for name in sorted(content.headers)}
        told["headers"] = {"type": "object", "properties": texts}
        if content.required:
            told["headers"]["required"] = sorted(content.required)
    plain = _PLAIN.get(content.format or "", {})
    if payload := (
        {**plain, **payload} if not payload or payload.get("type") == plain.get("type") else payload
    ):
        told["payload"] = payload
    if key := _PLAIN.get(content.key_format or ""):
        told["bindings"] = {"kafka": {"key": key, **BINDING}}
    return _id(content.name), told


@dataclass(slots=True)
class _Written:
    """The parts of the document so far. What is alike stands there once."""

    servers: dict[str, Any] = field(default_factory=dict)
    channels: dict[str, Any] = field(default_factory=dict)
    operations: dict[str, Any] = field(default_factory=dict)

    def add(self, flow: Flow, messages: list[tuple[str, dict[str, Any]]]) -> None:
        """Write down a flow, whose contents are these messages."""
        servers = [{"$ref": f"#/servers/{name}"} for name in self._servers(flow.client)]
        addresses: list[str | None] = list(flow.topics) if flow.pattern is None else [None]
        for address in addresses:
            channel = self._channel(flow, address, servers)
            within = f"#/channels/{channel}"
            names = [
                _put(self.channels[channel]["messages"], name, message)
                for name, message in messages
            ]
            operation = _operation(flow)
            operation |= {"channel": {"$ref": within}}
            operation |= {
                "messages": [{"$ref": f"{within}/messages/{name}"} for name in dict.fromkeys(names)]
            }
            if flow.reply_topic is not None:
                operation["reply"] = {
                    "channel": {
                        "$ref": f"#/channels/{self._channel(flow, flow.reply_topic, servers)}"
                    }
                }
            name = flow.name if len(addresses) == 1 else f"{flow.name}-{address}"
            _put(self.operations, _id(name), operation)

    def _servers(self, client: Mapping[str, Any]) -> list[str]:
        """The names of a client's brokers."""
        protocol = str(client.get("security_protocol", "PLAINTEXT"))
        security = []
        if protocol.startswith("SASL_"):
            security.append(_SASL[str(client.get("sasl_mechanism", "PLAIN"))])
        if client.get("ssl_certfile") is not None:
            security.append({"type": "X509"})
        told: dict[str, Any] = {"protocol": "kafka-secure" if protocol.endswith("SSL") else "kafka"}
        told |= {"security": security} if security else {}
        names = []
        for host in str(client["bootstrap_servers"]).split(","):
            server = {"host": host, **told}
            if host == EMBEDDED:
                server |= {
                    "host": "localhost",
                    "description": "A broker inside the process, for development only.",
                }
            names.append(_put(self.servers, _id(host), server))
        return names

    def _channel(self, flow: Flow, address: str | None, servers: list[dict[str, str]]) -> str:
        """The id of a topic's channel, or of that of a pattern."""
        if address is None:
            told: dict[str, Any] = {
                "address": None,
                "description": f"Each topic whose name matches {flow.pattern}",
                "x-topic-pattern": flow.pattern,
            }
        else:
            told = {"address": address, "bindings": {"kafka": {"topic": address, **BINDING}}}
        told["servers"] = servers
        name = _id(flow.name.removeprefix("receive-") if address is None else address)
        same = (
            key
            for key, known in self.channels.items()
            if {**known, "messages": None} == {**told, "messages": None}
        )
        return next(same, None) or _put(self.channels, name, {**told, "messages": {}})


def _operation(flow: Flow) -> dict[str, Any]:
    """What an operation says besides its channel."""
    told: dict[str, Any] = {"action": flow.action}
    functions = [described(function) for function in flow.functions]
    if functions:
        told["summary"] = ", ".join(name for name, _ in functions)
    if about := "\n\n".join(text for _, text in functions if text):
        told["description"] = about
    ids = {"groupId": flow.group_id, "clientId": flow.client.get("client_id")}
    if bound := {
        name: {"type": "string", "enum": [str(value)]}
        for name, value in ids.items()
        if value is not None
    }:
        told["bindings"] = {"kafka": {**bound, **BINDING}}
    return told


def _put(kept: dict[str, Any], name: str, value: Any) -> str:
    """Keep *value* under *name*, or one with a number where that is something else; where it is
    kept.
    """
    number = 1
    free = name
    while kept.setdefault(free, value) != value:
        number += 1
        free = f"{name}-{number}"
    return free


def _id(name: str) -> str:
    """The name as one that references can be made of."""
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-") or "_"
