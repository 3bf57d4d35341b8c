"""Reads Kafka's own definitions of its messages, and writes them as our data module.

    python -m tests.broker.wire.kafka_definitions [--write]

Without ``--write`` it only says whether the module is up to date. The definitions are JSON files in
the jar ``kafka-clients`` of the Kafka that tests start. To use another message, add its name to APIS or MESSAGES.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from reactive_kafka.broker.jars import KAFKA_VERSION, kafka_jars
from reactive_kafka.broker.wire.schema import OF_THE_TYPE

MODULE = Path(__file__).parents[3] / "reactive_kafka" / "broker" / "wire" / "definitions.py"
APIS = (
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "SaslHandshake",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "OffsetForLeaderEpoch",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "DescribeConfigs",
    "SaslAuthenticate",
    "CreatePartitions",
    "DeleteGroups",
    "IncrementalAlterConfigs",
    "OffsetDelete",
    "DescribeCluster",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "DescribeTopicPartitions",
    "ShareGroupHeartbeat",
    "ShareGroupDescribe",
    "ShareFetch",
    "ShareAcknowledge",
    "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
)
"""Requests and their responses, by the numbers of the APIs."""
MESSAGES = (
    "RequestHeader",
    "ResponseHeader",
    "ConsumerProtocolSubscription",
    "ConsumerProtocolAssignment",
)
"""Messages that are not an API by themselves."""

IN_A_MESSAGE = {
    "name",
    "type",
    "apiKey",
    "validVersions",
    "flexibleVersions",
    "fields",
    "commonStructs",
    # Says which kinds of servers answer.
    "listeners",
    # Checked, see below.
    "latestVersionUnstable",
}
IN_A_FIELD = {
    "name",
    "type",
    "versions",
    "nullableVersions",
    "taggedVersions",
    "tag",
    "flexibleVersions",
    "default",
    "ignorable",
    "fields",
    # These say nothing about the bytes: texts for people, and hints for Java's generator.
    "about",
    "entityType",
    "mapKey",
    "zeroCopy",
}
"""What a definition may say. A new word may change the bytes, so it is an error."""

HEAD = f'''"""The messages of Kafka that this package sends and reads. Pure data.

Written from the definitions in kafka-clients {KAFKA_VERSION}. Do not change it by hand. Run
``python -m tests.broker.wire.kafka_definitions --write``, which also has the list of messages.
"""

from __future__ import annotations

from reactive_kafka.broker.wire.schema import Api, WireField, WireMessage'''


def definitions() -> dict[str, dict[str, Any]]:
    """Return name of a message -> Kafka's definition of it."""
    found = {}
    with ZipFile(kafka_jars() / f"kafka-clients-{KAFKA_VERSION}.jar") as jar:
        for file in jar.namelist():
            if file.startswith("common/message/") and file.endswith(".json"):
                definition = json.loads(without_comments(jar.read(file).decode()))
                found[definition["name"]] = definition
    return found


def without_comments(text: str) -> str:
    """Return the JSON without its comments, each of which has a line to itself."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))


def module() -> str:
    """Return the text of our data module."""
    known = definitions()
    blocks = [HEAD]
    for name in APIS:
        request = known[f"{name}Request"]
        response = known[f"{name}Response"]
        if request["apiKey"] != response["apiKey"]:
            raise ValueError(f"{name}: request and response have other keys")
        if request["validVersions"] != response["validVersions"]:
            raise ValueError(f"{name}: request and response have other versions")
        blocks.append(
            f"{constant(name)} = Api(key={request['apiKey']}, "
            f"request={message(request)}, response={message(response)})"
        )
    blocks += [f"{constant(name)} = {message(known[name])}" for name in MESSAGES]
    return formatted("\n\n".join(blocks))


def message(definition: Mapping[str, Any]) -> str:
    """Return the code that makes a message."""
    name = definition["name"]
    check_words(name, definition, IN_A_MESSAGE)
    if definition.get("latestVersionUnstable"):
        raise ValueError(f"{name}: its last version may still change, so leave that out")
    structs = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
    versions = definition["validVersions"]
    flexible = definition["flexibleVersions"]
    return (
        f"WireMessage({name!r}, versions={versions!r}, flexible={flexible!r}, "
        f"fields={fields(definition['fields'], structs)})"
    )


def fields(wanted: list[dict[str, Any]], structs: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return the code of a tuple of fields."""
    return f"({' '.join(f'{field(each, structs)},' for each in wanted)})"


def field(definition: Mapping[str, Any], structs: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return the code that makes a field."""
    name = definition["name"]
    check_words(name, definition, IN_A_FIELD)
    return f"WireField({', '.join(arguments(definition, structs))})"


def arguments(
    definition: Mapping[str, Any], structs: Mapping[str, list[dict[str, Any]]]
) -> Iterator[str]:
    type_name = definition["type"]
    yield repr(snake(definition["name"]))
    yield repr(type_name)
    yield repr(definition["versions"])
    if "nullableVersions" in definition:
        yield f"nullable={definition['nullableVersions']!r}"
    if "taggedVersions" in definition:
        yield f"tagged={definition['taggedVersions']!r}"
        yield f"tag={definition['tag']!r}"
    if "default" in definition:
        default = default_value(type_name, definition["default"])
        if default is not OF_THE_TYPE:
            yield f"default={default!r}"
    if definition.get("ignorable"):
        yield "ignorable=True"
    if "flexibleVersions" in definition:
        yield f"flexible={definition['flexibleVersions']!r}"
    inner = definition.get("fields") or structs.get(type_name.removeprefix("[]"))
    if inner:
        yield f"fields={fields(inner, structs)}"


def default_value(type_name: str, written: Any) -> Any:
    """Return a default as Python's value; OF_THE_TYPE where it is that of the type anyway."""
    value: Any = written
    if written == "null":
        value = None
    elif type_name == "bool":
        value = str(written).lower() == "true"
    elif type_name == "float64":
        value = float(written)
    elif "int" in type_name:
        value = int(str(written), base=0)
    elif type_name != "string":
        raise ValueError(f"a {type_name} with the default {written!r}")
    return OF_THE_TYPE if value is not None and not value else value


def check_words(name: str, definition: Mapping[str, Any], known: set[str]) -> None:
    if unknown := definition.keys() - known:
        raise ValueError(f"{name}: read Kafka's README on {', '.join(sorted(unknown))} first")


def snake(name: str) -> str:
    """Return ``ThrottleTimeMs`` as ``throttle_time_ms``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def constant(name: str) -> str:
    return snake(name).upper()


def formatted(code: str) -> str:
    """Return the code as ruff formats it."""
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(MODULE), "-"]
    return subprocess.run(ruff, input=code, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Write the module, or compare it."""
    text = module()
    if "--write" in sys.argv[1:]:
        MODULE.write_text(text, encoding="utf-8")
    elif MODULE.read_text(encoding="utf-8") != text:
        sys.exit(f"{MODULE} is not what Kafka {KAFKA_VERSION} says: run this with --write")


if __name__ == "__main__":
    main()
