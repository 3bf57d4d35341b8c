"""Every store there is, behind one fixture."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from reactive_kafka.checkpoint.store import CheckpointStore, TransactionalStore
from reactive_kafka.checkpoint.stores.memory_store import forget
from reactive_kafka.checkpoint.stores.opening import open_store
from reactive_kafka.config.store_urls import ENTRY_POINTS
from tests import pages
from tests.checkpoint.servers import postgres_server as postgres_server
from tests.checkpoint.servers import redis_server as redis_server
from tests.checkpoint.servers import sql_url

PLAIN = ("memory", "sqlite", "files")
POSTGRES = (
    pytest.param("asyncpg", marks=pytest.mark.postgres),
    pytest.param("psycopg", marks=pytest.mark.postgres),
)
REDIS = pytest.param("redis", marks=pytest.mark.redis)
EVERY = (*PLAIN, "custom", *POSTGRES, REDIS)
TRANSACTIONAL = ("memory", "sqlite", *POSTGRES, REDIS)
SQL = ("sqlite", *POSTGRES)


class Clients:
    """Clients of one store, closed after the test.

    Attributes:
        kind: The store's.
    """

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self.url = url
        self._open: list[CheckpointStore] = []

    def store(self) -> CheckpointStore:
        """One more client of the store."""
        self._open.append(open_store(self.url))
        return self._open[-1]

    def transactional(self) -> TransactionalStore:
        """The same, of a store that has transactions."""
        store = self.store()
        assert isinstance(store, TransactionalStore)
        return store

    async def close(self) -> None:
        for store in self._open:
            await store.close()


@pytest.fixture
def group() -> str:
    """A group that no other test knows, of a name that nobody should choose."""
    return f"../bill ing:{{{uuid4().hex}}}/é%"


def install_stores(folder: Path, stores: Mapping[str, str]) -> None:
    """What pip would leave in *folder* of a package with these entry points: scheme ->
    ``module:callable``.
    """
    info = folder / "stores_of_ours-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stores-of-ours\nVersion: 1.0\n")
    lines = "".join(f"{scheme} = {value}\n" for scheme, value in stores.items())
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{lines}")


def install_the_store_of_the_example(folder: Path) -> None:
    """The custom store of examples/checkpoint, with its entry point."""
    shutil.copy(pages.ROOT / "examples" / "checkpoint" / "own_store.py", folder)
    install_stores(folder, {"onefile": "own_store:OneFileStore"})


@pytest.fixture
def url_of(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], str]]:
    """Kind of store -> URL; starts the server that it needs."""

    def url(kind: str) -> str:
        if kind == "custom":
            install_the_store_of_the_example(tmp_path)
            monkeypatch.syspath_prepend(tmp_path)
            return f"onefile://{tmp_path / 'offsets.json'}"
        if kind in ("asyncpg", "psycopg"):
            return sql_url(request.getfixturevalue("postgres_server"), kind)
        if kind == "redis":
            server: str = request.getfixturevalue("redis_server").url
            return server
        if kind == "sqlite":
            return f"sqlite:///{tmp_path / 'offsets.db'}"
        return f"file://{tmp_path / 'offsets'}" if kind == "files" else f"memory://{tmp_path.name}"

    yield url
    sys.modules.pop("own_store", None)


@pytest_asyncio.fixture
async def clients(
    request: pytest.FixtureRequest, url_of: Callable[[str], str]
) -> AsyncIterator[Clients]:
    """Of the store that the test's parameter names."""
    made = Clients(request.param, url_of(request.param))
    yield made
    await made.close()
    if made.kind == "memory":
        forget(made.url.partition("://")[2])


every_store = pytest.mark.parametrize("clients", EVERY, indirect=True)
transactional_stores = pytest.mark.parametrize("clients", TRANSACTIONAL, indirect=True)
sql_stores = pytest.mark.parametrize("clients", SQL, indirect=True)
