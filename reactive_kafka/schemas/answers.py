"""What the answers of a schema registry mean: an answer, a refusal, or that it cannot be used now. Pure.

Source: the REST API of Confluent's Schema Registry, whose errors have a code of five digits beside the HTTP status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reactive_kafka.errors import escaped

SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 40401, 40402, 40403
MOST_TEXT = 500
"""Characters of the registry's own words in an error."""


class RegistryAway(Exception):
    """The registry cannot be used now, which is about it and not about a record: it is asked again.

    ``wait_s`` is how long it wants to be left alone.
    """

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        self.wait_s = wait_s
        super().__init__(reason)


class NotFound(Exception):
    """It has no such schema, subject or version (yet)."""


class Refused(Exception):
    """It takes no such schema."""


def answer_of(status: int, body: bytes, headers: Mapping[str, str], *, writes: bool) -> Any:
    """The JSON of an answer; raises what else it means."""
    found = _json(body)
    if status == 200:
        if not isinstance(found, dict):
            raise RegistryAway("its answer is not the JSON of a schema registry")
        return found
    said = found if isinstance(found, dict) else {}
    code, text = said.get("error_code"), _shown(said.get("message"))
    if status == 404 and code in (SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND):
        raise NotFound(f"{status}: {text or 'not found'}")
    if writes and status in (409, 422):
        raise Refused(f"{status}: {text or ('incompatible' if status == 409 else 'no valid schema')}")
    raise RegistryAway(f"{status}: {_meaning(status, text)}", _wait_s(headers) if status in (429, 503) else 0.0)


def _meaning(status: int, text: str) -> str:
    if status in (401, 403):
        return "it refuses these credentials" + (f": {text}" if text else "")
    if status == 404:
        return "no schema registry answers at this path"
    if status == 429:
        return "too many requests"
    return text or ("it has failed" if status >= 500 else "unexpected")


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _shown(text: object) -> str:
    return escaped(text[:MOST_TEXT]) if isinstance(text, str) else ""


def _wait_s(headers: Mapping[str, str]) -> float:
    """The seconds of Retry-After, a minute at most."""
    given = headers.get("Retry-After") or ""
    return min(float(given), 60.0) if given.isdigit() and len(given) < 10 else 0.0
