"""A record as one JSON object: what ``tail --json`` prints and ``produce --json`` reads. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.partitions.start_choice import timestamp_ms
from reactive_kafka.records import HeaderPairs, RawRecord, RecordBytes
from reactive_kafka.wire import fields_problem

BASE64 = "base64"
"""The only key of the object that stands for bytes which are not UTF-8."""
FIELDS = ("value", "key", "headers", "partition", "timestamp")
# What tail prints in addition. A broker decides both.
IGNORED = ("topic", "offset")


class AddressedRecord(NamedTuple):
    """A record to write. Without a partition its key decides."""

    record: RecordBytes
    partition: int | None = None


def json_of(topic: str, partition: int, record: RawRecord, value: Any) -> dict[str, Any]:
    """Return the object of a record. *value* is its value as JSON data."""
    timestamp = record.timestamp
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        # The oldest message formats have no timestamp, and say so with -1.
        "timestamp": None if timestamp is None or timestamp < 0 else timestamp,
        "key": json_bytes(record.key),
        "headers": [[_text_of_name(name), json_bytes(value)] for name, value in record.headers],
        "value": value,
    }


def json_bytes(data: bytes | None) -> Any:
    """Return bytes as JSON data: text if they are UTF-8, otherwise an object with base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(data).decode()}


def _text_of_name(name: str) -> Any:
    """Return the name of a header. It has lone surrogates if it was not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return json_bytes(name.encode("utf-8", "surrogateescape"))
    return name


def read_json(line: bytes | str) -> Any:
    """Return what one line of JSON says.

    Raises:
        ValueError: It is not JSON, or contains NaN or an infinity, which JSON does not have.
    """
    try:
        return json.loads(line, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("not JSON that can be read: it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.colno}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"not JSON: it has no {name}")


def record_of_json(line: bytes, value_of: Callable[[Any], bytes | None]) -> AddressedRecord:
    """Return the record that a line says. *value_of* turns the value in it into bytes.

    Raises:
        ValueError: The line is not such an object. The text names the field and what is allowed.
    """
    found = read_json(line)
    if not isinstance(found, dict):
        raise ValueError('expected an object: {"key": "a", "value": "text"}')
    unknown = [name for name in found if name not in (*FIELDS, *IGNORED)]
    if unknown:
        raise ValueError(
            f"unknown field {one_line(repr(unknown[0]), 80)}; allowed are {', '.join(FIELDS)}"
        )
    if "value" not in found:
        raise ValueError("the field value is missing; null writes a tombstone")
    value = value_of(found["value"])
    key = bytes_of_json(found.get("key"), "key")
    headers = _headers(found.get("headers"))
    partition = found.get("partition")
    moment = _timestamp(found.get("timestamp"))
    if partition is not None and type(partition) is not int:
        raise ValueError(f"partition = {_shown(partition)}: expected a number or null")
    problem = fields_problem(value, key, headers, partition, moment)
    if problem is not None:
        raise ValueError(problem)
    return AddressedRecord(RecordBytes(value, key, headers, moment), partition)


def bytes_of_json(found: Any, field: str) -> bytes | None:
    """Return the bytes that :func:`json_bytes` has turned into JSON data.

    Raises:
        ValueError: They are anything else. The text names *field*.
    """
    if found is None:
        return None
    if isinstance(found, str):
        try:
            return found.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{field}: a lone surrogate has no bytes") from None
    if isinstance(found, dict) and found.keys() == {BASE64} and isinstance(found[BASE64], str):
        try:
            return base64.b64decode(found[BASE64], validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"{field}: not base64: {error}") from None
    raise ValueError(f'{field} = {_shown(found)}: expected a string, null or {{"{BASE64}": "..."}}')


def _headers(found: Any) -> HeaderPairs:
    if found is None:
        return ()
    if isinstance(found, dict):
        found = list(found.items())
    if not isinstance(found, list):
        raise ValueError(f'headers = {_shown(found)}: expected [["name", "value"]] or an object')
    return tuple(map(_header, found))


def _header(pair: Any) -> tuple[str, bytes | None]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise ValueError(f'headers: {_shown(pair)}: expected ["name", "value"]')
    name = bytes_of_json(pair[0], "the name of a header")
    if name is None:
        raise ValueError("headers: a header has no name")
    return name.decode("utf-8", "surrogateescape"), bytes_of_json(pair[1], "a header")


def _timestamp(found: Any) -> int | None:
    if found is None or type(found) is int:
        return found
    if isinstance(found, str):
        try:
            moment = datetime.fromisoformat(found)
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is not None:
            return timestamp_ms(moment)
    raise ValueError(
        f"timestamp = {_shown(found)}: expected milliseconds since 1970, or a time with its zone "
        '("2026-11-21T08:00:00Z")'
    )


def _shown(value: Any) -> str:
    return one_line(json.dumps(value), 80)
