"""What an error of a database means: it is away, its data are damaged, or somebody must act.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

Meaning = Literal["away", "corrupt", "fatal"]

_AWAY_STATES = ("08", "40", "53", "57P", "58", "25006", "25P03", "55P03", "57014")
"""SQLSTATEs, or how they begin: connection; rolled back (deadlock, serialization); full, too many
connections; shutting down; I/O; read-only (a standby); idle too long; lock or statement timeout.
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

_OF_CONNECTION = (
    "OperationalError",
    "InterfaceError",
    "TimeoutError",
    "ConnectionTimeout",
    "PoolTimeout",
)

_SOMEBODY_MUST_ACT = (
    "password authentication failed",
    "no pg_hba.conf entry",
    "does not exist",
    "no password supplied",
)
"""Of errors without an SQLSTATE: psycopg's, of connections that were refused. Another language
reads as "away".
"""


def meaning_of(error: BaseException) -> Meaning:
    """What is to be done about an error of a database, its driver, or the system.

    Away: nothing has happened, or nobody knows; the same may work later. A transaction that was
    rolled back for a deadlock or a serialization failure is among these.
    """
    chain = tuple(_chain(error))
    for found in chain:
        state = getattr(found, "sqlstate", None)
        if isinstance(state, str):
            return "away" if state.startswith(_AWAY_STATES) else "fatal"
        name = getattr(found, "sqlite_errorname", None)
        if isinstance(name, str):
            name = name.removeprefix("SQLITE_")
            if name.startswith(_CORRUPT_IN_SQLITE):
                return "corrupt"
            return "away" if name.startswith(_AWAY_IN_SQLITE) else "fatal"
    if any(isinstance(found, OSError | TimeoutError) for found in chain):
        return "away"
    return "away" if _is_of_connection(chain) else "fatal"


def is_away_for_users(error: BaseException) -> bool:
    """Whether the database is away, by an error of a user's statement; their own timeout or NOWAIT
    is no sign of it.
    """
    return not _has_state(error, "55P03", "57014") and meaning_of(error) == "away"


def has_failed(error: BaseException) -> bool:
    """Whether a statement before this one has failed, so that the transaction can only be rolled
    back.
    """
    return _has_state(error, "25P02")


def advice_for(error: BaseException) -> str:
    """What to add to the text of an error; empty where nobody knows better."""
    has_pooler = _has_state(error, "26000", "42P05")
    return (
        " (behind a pooler? add prepared_statement_cache_size=0 to the URL)" if has_pooler else ""
    )


def _has_state(error: BaseException, *states: str) -> bool:
    return any(getattr(found, "sqlstate", None) in states for found in _chain(error))


def _is_of_connection(chain: tuple[BaseException, ...]) -> bool:
    if any(getattr(found, "connection_invalidated", False) for found in chain):
        return True
    text = " ".join(map(str, chain))
    if any(words in text for words in _SOMEBODY_MUST_ACT):
        return False
    return any(type(found).__name__ in _OF_CONNECTION for found in chain)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, what the driver said, and what it came from; each once."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        found = waiting.pop(0)
        if found is not None and not any(found is known for known in seen):
            seen.append(found)
            yield found
            waiting += [getattr(found, "orig", None), found.__cause__]
