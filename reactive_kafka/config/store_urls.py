"""URLs of checkpoint stores: which are valid, and how they are shown. Opens nothing."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from reactive_kafka.config.secrets import masked

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "reactive_kafka.checkpoint_stores"
"""The entry point group of custom stores: scheme -> a callable that makes a store from a URL."""

SQL = ("postgresql", "postgresql+asyncpg", "postgresql+psycopg", "sqlite", "sqlite+aiosqlite")
REDIS = ("redis", "rediss")
SCHEMES = (*SQL, *REDIS, "file", "memory")
_EXAMPLES = "sqlite:///offsets.db, postgresql://user@host/database, redis://host:6379/0, file:///var/lib/offsets"

_MEANT = {
    "postgres": "postgresql",
    "postgresql+psycopg2": "postgresql+psycopg",
    "postgresql+pg8000": "postgresql+asyncpg",
    "sqlite+pysqlite": "sqlite",
    "sqlite3": "sqlite",
}


def scheme_of(url: str) -> str:
    """The part before ``://``, in lower case; empty if there is none."""
    scheme, found, _ = url.partition("://")
    return scheme.lower() if found else ""


def custom_stores() -> dict[str, EntryPoint]:
    """Scheme -> the entry point of a custom store, from all installed packages."""
    # A tenth of what importing this package would take.
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def check_url(url: str) -> None:
    """Check that *url* can name a store, without opening it; a ValueError says what is allowed, and
    shows no secret.
    """
    scheme = scheme_of(url)
    if scheme in SCHEMES:
        if problem := _problem(scheme, _split(url)):
            raise ValueError(f"{shown(url)}: {problem}")
    elif not scheme:
        raise ValueError(f"not a URL: write one such as {_EXAMPLES}")
    elif scheme not in (custom := custom_stores()):
        allowed = (*SCHEMES, *custom)
        near = _MEANT.get(scheme) or next(
            iter(difflib.get_close_matches(scheme, allowed, n=1)), None
        )
        hint = f"did you mean {near}://? " if near else ""
        raise ValueError(
            f"there is no store for {scheme}://: {hint}allowed: {', '.join(allowed)}"
            f" (a package may add its own, as an entry point in {ENTRY_POINTS})"
        )


def shown(url: str) -> str:
    """The URL without its user, its password and secret parameters."""
    return str(masked("", url))


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        # Its text may quote the password.
        raise ValueError(
            f"{shown(url)}: its host or port cannot be read (encode @, / and : of a password: %40 %2F %3A)"
        ) from None
    return parts


def _problem(scheme: str, parts: SplitResult) -> str | None:
    host = parts.netloc
    path = parts.path.strip("/")
    if scheme.startswith("sqlite") and host:
        return "a file follows three slashes, sqlite:///offsets.db, and an absolute one four, sqlite:////var/offsets.db"
    if scheme.startswith("sqlite") and parts.path in ("", "/", "/:memory:"):
        return "a database in memory would forget every position: name a file, sqlite:///offsets.db"
    if scheme == "file" and host not in ("", "localhost"):
        return "an absolute folder must follow three slashes: file:///var/lib/offsets"
    if scheme == "file" and not path:
        return "it names no folder: file:///var/lib/offsets"
    if scheme == "file" and (parts.query or parts.fragment):
        return "nothing may follow the folder (encode ? and #: %3F %23)"
    if scheme in REDIS and path and not path.isdigit():
        return "the number of a database must follow the host: redis://host:6379/0"
    if scheme in REDIS and not parts.hostname:
        return "it names no host: redis://host:6379/0"
    return (
        "only a name may follow: memory://NAME"
        if scheme == "memory" and (path or not host)
        else None
    )
