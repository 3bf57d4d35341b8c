"""What the answers of a schema registry mean: an answer, a refusal, or that it cannot be used now.
Pure.

A registry that says that it does not know something is not away: waiting for it would block a
partition for ever. But only a registry can say that. A page of a proxy, or of an ingress whose
backend restarts, says nothing about a schema. The errors of a registry are JSON with an integer
``error_code``, so that is how the two are told apart.

Source: the REST API of Confluent's Schema Registry, whose errors have a code of five digits beside
the HTTP status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

from reactive_kafka.errors import escaped

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


class NoGuids(NotFound):
    """It cannot look up any schema by its GUID: that path is younger than many registries."""


class Refused(Exception):
    """It takes no such schema, or no such question."""


class StatusMeaning(Enum):
    """What a status means for the record that needs the answer."""

    ANSWER = "the record goes on"
    AWAY = "the record waits: the registry may recover"
    NOT_ALLOWED = "the record waits: an operator may mend credentials or rights"
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
"""The statuses that are not like their neighbours: other 4xx refuse the question, and all others
mean away.
"""

ABOUT_CONTENT = frozenset({409, 422})
"""Whoever answers these has looked into the schema that was posted. No proxy does."""


def meaning_of(status: int, *, is_registry: bool, by_guid: bool = False) -> StatusMeaning:
    """What a status means.

    Args:
        is_registry: The answer is the JSON of a registry's error, and no page of something before
            it.
        by_guid: A GUID was asked for. Registries that do not have that path answer in any form.
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
    """The JSON of an answer, a dict.

    Raises:
        NotFound, NoGuids, Refused: the registry says so.
        RegistryAway: anything else.
    """
    found = _json(body)
    said = found if isinstance(found, dict) else {}
    code = said.get("error_code")
    text = _shown(said.get("message"))
    meaning = meaning_of(status, is_registry=type(code) is int, by_guid=by_guid)
    if meaning is StatusMeaning.ANSWER:
        if not isinstance(found, dict):
            raise RegistryAway("its answer is not the JSON of a schema registry")
        return found
    if meaning is StatusMeaning.NOT_FOUND:
        if by_guid and not _names_what_is_missing(code):
            raise NoGuids(
                f"{status}: it does not look up schemas by GUID" + (f": {text}" if text else "")
            )
        raise NotFound(f"{status}: {text or 'not found'}")
    if meaning is StatusMeaning.REFUSED:
        raise Refused(f"{status}: {text or _REFUSALS.get(status, 'it refuses this request')}")
    raise RegistryAway(
        f"{status}: {_why_away(status, meaning, text)}",
        _wait_s(headers) if status in (429, 503) else 0,
    )


_REFUSALS = {409: "incompatible", 422: "no valid schema"}


def _names_what_is_missing(code: object) -> bool:
    """True for 40401, 40402, 40403 and their like; 404 alone is about the path."""
    return isinstance(code, int) and 40400 < code < 40500


def _why_away(status: int, meaning: StatusMeaning, text: str) -> str:
    if meaning is StatusMeaning.NOT_ALLOWED:
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
