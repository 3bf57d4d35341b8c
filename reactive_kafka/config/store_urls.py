"""URLs of checkpoint stores: which are valid, and how to show them. Opens nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from reactive_kafka.config.secrets import masked
from reactive_kafka.near_names import near_names

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "reactive_kafka.checkpoint_stores"
"""The entry point group of custom stores: scheme -> a callable that makes a store from a URL."""

SQL = ("postgresql", "postgresql+asyncpg", "postgresql+psycopg", "sqlite", "sqlite+aiosqlite")
REDIS = ("redis", "rediss")
SCHEMES = (*SQL, *REDIS, "file", "memory")
_EXAMPLES = (
    "sqlite:///offsets.db, postgresql://user@host/database, redis://host:6379/0, "
    "file:///var/lib/offsets"
)
# Schemes of other products and drivers -> the scheme to use here.
_MEANT = {
    "postgres": "postgresql",
    "postgresql+psycopg2": "postgresql+psycopg",
    "postgresql+pg8000": "postgresql+asyncpg",
    "sqlite+pysqlite": "sqlite",
    "sqlite3": "sqlite",
}


def scheme_of(url: str) -> str:
    """Return the part before ``://`` in lower case; an empty string without one."""
    scheme, found, _ = url.partition("://")
    return scheme.lower() if found else ""


def custom_stores() -> dict[str, EntryPoint]:
    """Return scheme -> the entry point of a custom store, from all installed packages."""
    # Imported here because it would add a tenth to the import time of the package.
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def check_url(url: str) -> None:
    """Check that *url* can name a store, without opening it.

    Raises:
        ValueError: It cannot. The text says what is allowed, and shows no secret.
    """
    scheme = scheme_of(url)
    if not scheme:
        raise ValueError(f"not a URL: write one such as {_EXAMPLES}")
    if scheme in SCHEMES:
        problem = _problem(scheme, _split(url))
        if problem is not None:
            raise ValueError(f"{shown(url)}: {problem}")
        return
    custom = custom_stores()
    if scheme in custom:
        return
    allowed = (*SCHEMES, *custom)
    close = [_MEANT[scheme]] if scheme in _MEANT else near_names(scheme, allowed)
    hint = f"did you mean {close[0]}://? " if close else ""
    raise ValueError(
        f"there is no store for {scheme}://: {hint}allowed: {', '.join(allowed)} (a package may "
        f"add its own, as an entry point in {ENTRY_POINTS})"
    )


def shown(url: str) -> str:
    """Return the URL without its user, its password and its secret parameters."""
    return str(masked("", url))


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        # The text of the error is not passed on, because it may quote the password.
        raise ValueError(
            f"{shown(url)}: its host or port cannot be read (encode @, / and : of a password: %40 "
            "%2F %3A)"
        ) from None
    return parts


def _problem(scheme: str, parts: SplitResult) -> str | None:
    """Return why a URL with one of our schemes is wrong; None if it is right."""
    host = parts.netloc
    path = parts.path.strip("/")
    if scheme.startswith("sqlite") and host:
        return (
            "write three slashes before a file, sqlite:///offsets.db, and four before an absolute "
            "one, sqlite:////var/offsets.db"
        )
    if scheme.startswith("sqlite") and parts.path in ("", "/", "/:memory:"):
        return "name a file, sqlite:///offsets.db: a database in memory would forget every position"
    if scheme == "file" and host not in ("", "localhost"):
        return "an absolute folder must follow three slashes: file:///var/lib/offsets"
    if scheme == "file" and not path:
        return "it names no folder: file:///var/lib/offsets"
    if scheme == "file" and (parts.query or parts.fragment):
        return "nothing may follow the folder (encode ? and #: %3F %23)"
    if scheme in REDIS and path and not path.isdecimal():
        return "the number of a database must follow the host: redis://host:6379/0"
    if scheme in REDIS and not parts.hostname:
        return "it names no host: redis://host:6379/0"
    if scheme == "memory" and (path or not host):
        return "only a name may follow: memory://NAME"
    return None
