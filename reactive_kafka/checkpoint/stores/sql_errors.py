"""What an error of a database means: it is away, its data are damaged, or an operator must act."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

ErrorMeaning = Literal["away", "corrupt", "fatal"]

_AWAY_STATES = ("08", "40", "53", "57P", "58", "25006", "25P03", "55P03", "57014")
"""SQLSTATEs, or their first characters, of a database that is away.

In this order: connection; rolled back (deadlock, serialization); full, or too many connections;
shutting down; I/O; read-only (a standby); idle too long; lock timeout; statement timeout.

Source: PostgreSQL manual, appendix A."""

_AWAY_IN_SQLITE = (
    "BUSY",
    "LOCKED",
    "FULL",
    "IOERR",
    "CANTOPEN",
    "READONLY",
    "PROTOCOL",
    "NOMEM",
    "INTERRUPT",
)
_CORRUPT_IN_SQLITE = ("CORRUPT", "NOTADB")

_CONNECTION_ERRORS = (
    "OperationalError",
    "InterfaceError",
    "TimeoutError",
    "ConnectionTimeout",
    "PoolTimeout",
)

_FATAL_TEXTS = (
    "password authentication failed",
    "no pg_hba.conf entry",
    "does not exist",
    "no password supplied",
)
"""Words in errors without an SQLSTATE, which psycopg raises for refused connections.

Messages in another language are not recognised, and mean that the database is away.
"""


def meaning_of(error: BaseException) -> ErrorMeaning:
    """Return what an error of a database, its driver or the system means.

    ``away``: nothing was written, or the outcome is unknown, and the same call may work later. A
    transaction that was rolled back for a deadlock or a serialization failure counts as this.
    """
    chain = tuple(_chain(error))
    for link in chain:
        state = getattr(link, "sqlstate", None)
        if isinstance(state, str):
            return "away" if state.startswith(_AWAY_STATES) else "fatal"
        name = getattr(link, "sqlite_errorname", None)
        if isinstance(name, str):
            name = name.removeprefix("SQLITE_")
            if name.startswith(_CORRUPT_IN_SQLITE):
                return "corrupt"
            return "away" if name.startswith(_AWAY_IN_SQLITE) else "fatal"
    if any(isinstance(link, OSError | TimeoutError) for link in chain):
        return "away"
    return "away" if _is_of_connection(chain) else "fatal"


def is_away_for_users(error: BaseException) -> bool:
    """Return whether an error of a user's statement means that the database is away.

    A statement timeout or NOWAIT of the user does not.
    """
    return not _has_state(error, "55P03", "57014") and meaning_of(error) == "away"


def has_failed(error: BaseException) -> bool:
    """Return whether an earlier statement has failed, so that only a rollback is possible."""
    return _has_state(error, "25P02")


def advice_for(error: BaseException) -> str:
    """Return advice to add to the text of an error, or nothing."""
    # A prepared statement is missing, or exists already: another client uses the same server.
    if _has_state(error, "26000", "42P05"):
        return " (behind a pooler? add prepared_statement_cache_size=0 to the URL)"
    return ""


def _has_state(error: BaseException, *states: str) -> bool:
    return any(getattr(link, "sqlstate", None) in states for link in _chain(error))


def _is_of_connection(chain: tuple[BaseException, ...]) -> bool:
    if any(getattr(link, "connection_invalidated", False) for link in chain):
        return True
    text = " ".join(map(str, chain))
    if any(words in text for words in _FATAL_TEXTS):
        return False
    return any(type(link).__name__ in _CONNECTION_ERRORS for link in chain)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the driver's errors in it, and their causes, each once."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop(0)
        if link is not None and not any(link is known for known in seen):
            seen.append(link)
            yield link
            waiting += [getattr(link, "orig", None), link.__cause__]
