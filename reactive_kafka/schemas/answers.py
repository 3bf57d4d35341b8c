"""Decides what a registry's response means: an answer, a refusal, or that it is away. Pure.

A registry that says that it does not know a schema is not away: to wait for it would block a
partition for ever. But only a registry can say that. An error page of a proxy, or of an ingress
whose backend restarts, says nothing about a schema. The errors of a registry are JSON with an
integer ``error_code``, which such pages do not have.

Source: the REST API of Confluent's Schema Registry. Its errors have a code of five digits and an
HTTP status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from reactive_kafka.errors import escaped

MOST_TEXT = 500
"""How many characters of the registry's message an error shows."""


class RegistryAway(Exception):
    """The registry cannot be used now. It is asked again, and the record waits.

    Attributes:
        wait_s: How long the registry wants not to be asked.
    """

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        self.wait_s = wait_s
        super().__init__(reason)


class NotFound(Exception):
    """The registry has no such schema, subject or version (yet)."""


class NoGuids(NotFound):
    """The registry looks up no schema by its GUID: many registries do not have that path."""


class Refused(Exception):
    """The registry refuses the schema, or the request."""


class StatusMeaning(Enum):
    """What a status means for the record that needs the answer."""

    ANSWER = "the record is handled"
    AWAY = "the record waits: the registry may recover"
    NOT_ALLOWED = "the record waits: an operator may correct credentials or rights"
    NOT_FOUND = "the record is nacked once the registry has repeated it"
    REFUSED = "the record is nacked"


MEANINGS: dict[int, StatusMeaning] = {
    200: StatusMeaning.ANSWER,
    401: StatusMeaning.NOT_ALLOWED,
    403: StatusMeaning.NOT_ALLOWED,
    404: StatusMeaning.NOT_FOUND,
    407: StatusMeaning.NOT_ALLOWED,
    408: StatusMeaning.AWAY,
    425: StatusMeaning.AWAY,
    429: StatusMeaning.AWAY,
}
"""The statuses with a meaning of their own. Other 4xx are refusals; all others mean away."""

ABOUT_CONTENT = frozenset({409, 422})
"""Statuses that are about the content of a posted schema. A proxy does not return them."""


def meaning_of(status: int, *, is_registry: bool, by_guid: bool = False) -> StatusMeaning:
    """Return what a status means.

    Args:
        status: The HTTP status.
        is_registry: The body is the JSON of a registry's error, so it is no page of a proxy.
        by_guid: A schema was asked for by its GUID. A registry without that path answers in any
            form.
    """
    default = StatusMeaning.REFUSED if 400 <= status < 500 else StatusMeaning.AWAY
    meaning = MEANINGS.get(status, default)
    if is_registry:
        return meaning
    if meaning is StatusMeaning.REFUSED and status not in ABOUT_CONTENT:
        return StatusMeaning.AWAY
    if meaning is StatusMeaning.NOT_FOUND and not by_guid:
        return StatusMeaning.AWAY
    return meaning


def answer_of(
    status: int, body: bytes, headers: Mapping[str, str], *, by_guid: bool = False
) -> Any:
    """Return the JSON of an answer, a dict.

    Raises:
        NotFound, NoGuids, Refused: The registry says so.
        RegistryAway: The response is anything else.
    """
    document = _json(body)
    error = document if isinstance(document, dict) else {}
    code = error.get("error_code")
    text = _shown(error.get("message"))
    meaning = meaning_of(status, is_registry=type(code) is int, by_guid=by_guid)
    if meaning is StatusMeaning.ANSWER:
        if not isinstance(document, dict):
            raise RegistryAway("its answer is not the JSON of a schema registry")
        return document
    if meaning is StatusMeaning.NOT_FOUND:
        if by_guid and not _is_about_schema(code):
            more = f": {text}" if text else ""
            raise NoGuids(f"{status}: it does not look up schemas by GUID{more}")
        raise NotFound(f"{status}: {text or 'not found'}")
    if meaning is StatusMeaning.REFUSED:
        raise Refused(f"{status}: {text or _REFUSALS.get(status, 'it refuses this request')}")
    wait_s = _wait_s(headers) if status in (429, 503) else 0
    raise RegistryAway(f"{status}: {_away_reason(status, meaning, text)}", wait_s)


_REFUSALS = {409: "incompatible", 422: "no valid schema"}


def _is_about_schema(code: object) -> bool:
    """Return True for 40401, 40402, 40403 and so on. A plain 404 is about the path."""
    return isinstance(code, int) and 40400 < code < 40500


def _away_reason(status: int, meaning: StatusMeaning, text: str) -> str:
    if meaning is StatusMeaning.NOT_ALLOWED:
        return f"it refuses these credentials: {text}" if text else "it refuses these credentials"
    if status == 404:
        return "no schema registry answers at this path"
    if status == 429:
        return "too many requests"
    if text:
        return text
    return "it has failed" if status >= 500 else "unexpected"


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _shown(text: object) -> str:
    return escaped(text[:MOST_TEXT]) if isinstance(text, str) else ""


def _wait_s(headers: Mapping[str, str]) -> float:
    """Return the seconds of Retry-After, at most 60. A date in its place is ignored."""
    # Many proxies write the names of headers in lower case.
    text = {name.lower(): value for name, value in headers.items()}.get("retry-after", "")
    if not (text.isascii() and text.isdigit()) or len(text) >= 10:
        return 0.0
    return min(float(text), 60.0)
