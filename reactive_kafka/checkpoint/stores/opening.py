"""Opens the checkpoint store that a URL names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from reactive_kafka.checkpoint.store import CheckpointStore
from reactive_kafka.checkpoint.stores.files import FileStore
from reactive_kafka.checkpoint.stores.memory_store import MemoryStore
from reactive_kafka.config import store_urls
from reactive_kafka.config.secrets import revealed
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.errors import ConfigError, MissingExtraError


def open_store(url: str) -> CheckpointStore:
    """Return the store that *url* names. It connects at its first call.

    Raises:
        MissingExtraError: The store needs a package that is not installed. The text is the command
            that installs it.
        ValueError: There is no such store, or its URL cannot work. The text contains no secret.
    """
    url = revealed(url)
    store_urls.check_url(url)
    scheme = store_urls.scheme_of(url)
    if scheme not in store_urls.SCHEMES:
        return _custom(scheme, url)
    try:
        if scheme in store_urls.SQL:
            from reactive_kafka.checkpoint.stores.sql import SqlStore

            return SqlStore(url)
        if scheme in store_urls.REDIS:
            from reactive_kafka.checkpoint.stores.redis import RedisStore

            return RedisStore(url)
    except ImportError as error:
        # SQLAlchemy, the driver that the URL names, or redis is missing.
        extra = "sql" if scheme in store_urls.SQL else "redis"
        raise MissingExtraError(f"a checkpoint store at {scheme}://", extra) from error
    except ValueError:
        raise
    except Exception as error:
        # Each driver raises its own class of error for a parameter that it cannot read.
        raise ValueError(f"{store_urls.shown(url)}: {_reason(url, error)}") from error
    if scheme == "file":
        return FileStore(Path(unquote(urlsplit(url).path)))
    return MemoryStore.named(url.partition("://")[2])


def check_stores(channels: Iterable[IncomingSettings]) -> None:
    """Raise if a store of these channels cannot be made or needs a missing package.

    Nothing connects.
    """
    problems = []
    for channel in channels:
        if channel.checkpoint is not None:
            try:
                open_store(channel.checkpoint.store)
            except ValueError as error:
                place = channel.place(
                    "checkpoint.store", store_urls.shown(channel.checkpoint.store)
                )
                problems.append(f"{place}: {error}")
    if problems:
        raise ConfigError(*problems)


def _custom(scheme: str, url: str) -> CheckpointStore:
    entry = store_urls.custom_stores()[scheme]
    what = f"the store for {scheme}:// ({entry.value})"
    try:
        make: Callable[[str], CheckpointStore] = entry.load()
    except Exception as error:
        # It is the user's and may raise anything.
        raise ValueError(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error
    try:
        store = make(url)
    except Exception as error:
        # It is the user's and may raise anything.
        raise ValueError(f"{what} cannot be made: {_reason(url, error)}") from error
    missing = [
        name for name in ("read", "write", "close") if not callable(getattr(store, name, None))
    ]
    if missing:
        raise ValueError(
            f"what {entry.value} makes for {scheme}:// is no store: it has no {', '.join(missing)}"
        )
    return store


def _reason(url: str, error: Exception) -> str:
    """Return the class and the text of an error that a URL has caused."""
    name = type(error).__name__
    if store_urls.shown(url) != url:
        return f"{name} (its text is left out: the URL has a secret in it)"
    return f"{name}: {error}"
