"""Makes the AsyncAPI 3.0 document of an application: servers, channels, messages, operations. Pure.

Of a client's properties only the brokers, the kind of security and the client's id are written, so
that no credentials get into the document.
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
    """What the document says about the application as a whole."""

    title: str
    version: str
    description: str = ""


def document(info: Info, flows: Iterable[Flow]) -> dict[str, Any]:
    """Return the document for *flows*."""
    all_flows = list(flows)
    contents = [content for flow in all_flows for content in flow.contents]
    # All at once, so that a model that several messages use is one schema.
    payloads, models = schemas_of_types(
        [content.asked for content in contents], "#/components/schemas/"
    )
    parts = _DocumentParts()
    rest = iter(zip(contents, payloads, strict=True))
    for flow in all_flows:
        parts.add(flow, [_message(*next(rest)) for _ in flow.contents])
    about = {"description": info.description} if info.description else {}
    return {
        "asyncapi": VERSION,
        "info": {"title": info.title, "version": info.version, **about},
        "defaultContentType": "application/json",
        "servers": parts.servers,
        "channels": parts.channels,
        "operations": parts.operations,
        "components": {"schemas": models},
    }


def _message(content: MessageContent, payload: Schema) -> tuple[str, dict[str, Any]]:
    """Return the id of a message, and the message object."""
    message: dict[str, Any] = {"name": content.name, "title": content.name}
    if content.about:
        message["summary"] = content.about
    if content.format is not None:
        message["contentType"] = _TYPES.get(content.format, _BINARY)
    if content.headers:
        texts = {name: {"type": "string"} for name in sorted(content.headers)}
        message["headers"] = {"type": "object", "properties": texts}
        if content.required:
            message["headers"]["required"] = sorted(content.required)
    of_format = _PLAIN.get(content.format or "", {})
    if not payload or payload.get("type") == of_format.get("type"):
        # The format says more than the type: int is an integer, and int32 one of four bytes.
        payload = {**of_format, **payload}
    if payload:
        message["payload"] = payload
    key = _PLAIN.get(content.key_format or "")
    if key:
        message["bindings"] = {"kafka": {"key": key, **BINDING}}
    return _id(content.name), message


@dataclass(slots=True)
class _DocumentParts:
    """The parts of the document that were made so far. Equal parts are kept once."""

    servers: dict[str, Any] = field(default_factory=dict)
    channels: dict[str, Any] = field(default_factory=dict)
    operations: dict[str, Any] = field(default_factory=dict)

    def add(self, flow: Flow, messages: list[tuple[str, dict[str, Any]]]) -> None:
        """Add a flow with its messages: an operation for each of its topics."""
        servers = [{"$ref": f"#/servers/{name}"} for name in self._servers(flow.client)]
        addresses: list[str | None] = list(flow.topics) if flow.pattern is None else [None]
        for address in addresses:
            channel = self._channel(flow, address, servers)
            ref = f"#/channels/{channel}"
            names = [
                _put(self.channels[channel]["messages"], name, message)
                for name, message in messages
            ]
            operation = _operation(flow)
            operation["channel"] = {"$ref": ref}
            operation["messages"] = [
                {"$ref": f"{ref}/messages/{name}"} for name in dict.fromkeys(names)
            ]
            if flow.reply_topic is not None:
                reply_channel = self._channel(flow, flow.reply_topic, servers)
                operation["reply"] = {"channel": {"$ref": f"#/channels/{reply_channel}"}}
            name = flow.name if len(addresses) == 1 else f"{flow.name}-{address}"
            _put(self.operations, _id(name), operation)

    def _servers(self, client: Mapping[str, Any]) -> list[str]:
        """Add a client's brokers; return their ids."""
        protocol = str(client.get("security_protocol", "PLAINTEXT"))
        security = []
        if protocol.startswith("SASL_"):
            security.append(_SASL[str(client.get("sasl_mechanism", "PLAIN"))])
        if client.get("ssl_certfile") is not None:
            security.append({"type": "X509"})
        common: dict[str, Any] = {
            "protocol": "kafka-secure" if protocol.endswith("SSL") else "kafka"
        }
        if security:
            common["security"] = security
        names = []
        for host in str(client["bootstrap_servers"]).split(","):
            server = {"host": host, **common}
            if host == EMBEDDED:
                server |= {
                    "host": "localhost",
                    "description": "A broker inside the process, for development only.",
                }
            names.append(_put(self.servers, _id(host), server))
        return names

    def _channel(self, flow: Flow, address: str | None, servers: list[dict[str, str]]) -> str:
        """Add the channel of a topic, or of the pattern without one; return its id."""
        if address is None:
            name = flow.name.removeprefix("receive-")
            channel: dict[str, Any] = {
                "address": None,
                "description": f"Each topic whose name matches {flow.pattern}",
                "x-topic-pattern": flow.pattern,
            }
        else:
            name = address
            channel = {"address": address, "bindings": {"kafka": {"topic": address, **BINDING}}}
        channel["servers"] = servers
        for known_name, known in self.channels.items():
            # Flows that share a topic share its channel, and add their messages to it.
            if {**known, "messages": None} == {**channel, "messages": None}:
                return known_name
        return _put(self.channels, _id(name), {**channel, "messages": {}})


def _operation(flow: Flow) -> dict[str, Any]:
    """Return an operation without its channel and messages."""
    operation: dict[str, Any] = {"action": flow.action}
    functions = [described(function) for function in flow.functions]
    if functions:
        operation["summary"] = ", ".join(name for name, _ in functions)
    about = "\n\n".join(text for _, text in functions if text)
    if about:
        operation["description"] = about
    ids = {"groupId": flow.group_id, "clientId": flow.client.get("client_id")}
    bindings = {
        name: {"type": "string", "enum": [str(value)]}
        for name, value in ids.items()
        if value is not None
    }
    if bindings:
        operation["bindings"] = {"kafka": {**bindings, **BINDING}}
    return operation


def _put(parts: dict[str, Any], name: str, value: Any) -> str:
    """Keep *value* under *name*, or under *name* with a number if that is taken; return the key."""
    number = 1
    key = name
    while parts.setdefault(key, value) != value:
        number += 1
        key = f"{name}-{number}"
    return key


def _id(name: str) -> str:
    """Return the name as a key that references can contain."""
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip("-") or "_"
