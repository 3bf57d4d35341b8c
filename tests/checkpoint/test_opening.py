"""Stores by their URLs: which can work, what is said of the others, and what is not shown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from reactive_kafka import TopicPartition
from reactive_kafka.checkpoint.store import TransactionalStore
from reactive_kafka.checkpoint.stores.files import FileStore
from reactive_kafka.checkpoint.stores.memory_store import MemoryStore, forget
from reactive_kafka.checkpoint.stores.opening import check_stores, open_store
from reactive_kafka.checkpoint.stores.redis import RedisStore
from reactive_kafka.checkpoint.stores.sql import SqlStore
from reactive_kafka.errors import ConfigError, FatalBrokerError, how_to_install
from tests.checkpoint.conftest import install_stores
from tests.config.loading import incoming, loaded


def configured(url: str) -> None:
    """Load a configuration that names the store."""
    loaded(incoming(commit_strategy="checkpoint", checkpoint={"store": url}))


@pytest.mark.parametrize(
    ("url", "kind", "transactional"),
    [
        ("sqlite:///offsets.db", SqlStore, True),
        ("sqlite+aiosqlite:////var/lib/offsets.db?timeout=3", SqlStore, True),
        ("postgresql://billing:pw@db.example:5433/shop", SqlStore, True),
        ("postgresql+asyncpg://db/shop?ssl=require", SqlStore, True),
        ("postgresql+psycopg:///shop?host=/run/postgresql", SqlStore, True),
        ("redis://cache.example", RedisStore, True),
        ("rediss://:pw@cache.example:6380/2?ssl_cert_reqs=required", RedisStore, True),
        ("file:///var/lib/my%20offsets", FileStore, False),
        ("memory://tests", MemoryStore, True),
    ],
)
def test_a_url_opens_its_store_and_connects_to_nothing(
    url: str, kind: type, transactional: bool
) -> None:
    configured(url)
    store = open_store(url)
    assert type(store) is kind
    assert isinstance(store, TransactionalStore) is transactional
    assert "pw" not in repr(store)
    forget("tests")


def test_a_folder_is_decoded_and_memory_is_shared_by_its_name() -> None:
    assert repr(open_store("file:///var/lib/my%20offsets")) == "FileStore('/var/lib/my offsets')"
    one, same, other = (open_store(f"memory://{name}") for name in ("one", "one", "other"))
    assert (
        isinstance(one, MemoryStore)
        and isinstance(same, MemoryStore)
        and isinstance(other, MemoryStore)
    )
    assert one.rows is same.rows is not other.rows
    forget("one")
    forget("other")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("offsets.db", "not a URL: write one such as sqlite:///"),
        ("", "not a URL|expected the URL of a store"),
        ("sqlite://offsets.db", "three slashes"),
        ("sqlite://", "would forget every position"),
        ("sqlite:///:memory:", "would forget every position"),
        ("postgres://u:s3cr3t@db/shop", "did you mean postgresql://"),
        ("postgresql+psycopg2://u:s3cr3t@db/shop", r"did you mean postgresql\+psycopg://"),
        (
            "mysql://u:s3cr3t@db/shop",
            r"there is no store for mysql://: allowed: postgresql, .*entry point",
        ),
        ("reddis://cache", "did you mean redis"),
        (
            "postgresql://u:s3cr3t@db:port/shop",
            r"\*\*\*@db:port/shop: its host or port cannot be read",
        ),
        ("postgresql://u:s3cr3t/@[db/shop", r"cannot be read \(encode"),
        ("redis://:s3cr3t@cache/orders", "the number of a database"),
        ("redis://cache/²", "the number of a database"),
        ("redis:///0", "it names no host"),
        ("file://var/lib", "must follow three slashes"),
        ("file:///", "it names no folder"),
        ("file:///var/lib?mode=rw", "nothing may follow"),
        ("memory://", "memory://NAME"),
        ("memory://a/b", "memory://NAME"),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_opened(url: str, told: str) -> None:
    for call in (configured, open_store):
        with pytest.raises(ValueError, match=told) as refused:
            call(url)
        assert "s3cr3t" not in str(refused.value)


def test_a_parameter_that_redis_does_not_know_is_told_before_anything_connects() -> None:
    with pytest.raises(
        ValueError, match=r"redis://\*\*\*@cache\?sslmode=require: .*argument 'sslmode'"
    ):
        open_store("redis://:s3cr3t@cache?sslmode=require")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://db/shop?port=x", r"postgresql://db/shop\?port=x: ArgumentError: .*'x'"),
        ("postgresql://u:s3cr3t@db/shop?port=x", r"\?port=x: ArgumentError \(its text is left out"),
        ("redis://cache?protocol=9", r"\?protocol=9: ConnectionError: protocol must be"),
        ("rediss://cache?ssl_cert_reqs=x", r"\?ssl_cert_reqs=x: RedisError: Invalid SSL"),
        ("sqlite:///offsets.db?timeout=x", "could not convert string to float"),
    ],
)
def test_a_parameter_that_a_driver_cannot_read_is_told_at_the_start(url: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        open_store(url)
    assert "s3cr3t" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"\[incoming.orders\] checkpoint.store = .*: "):
        check_stores(
            loaded(
                incoming(commit_strategy="checkpoint", checkpoint={"store": url})
            ).incoming.values()
        )


@pytest.mark.parametrize(
    ("url", "told"),
    [
        # asyncpg's is "ssl"; "sslmode" is what every other driver has
        ("postgresql://u:s3cr3t@127.0.0.1:1/shop?sslmode=require", "argument 'sslmode'"),
        ("postgresql://u:s3cr3t@a..b/shop", "label empty or too long"),
        ("postgresql+psycopg://u:s3cr3t@127.0.0.1:1/shop?bogus=1", "bogus"),
    ],
)
async def test_a_connection_that_cannot_be_made_is_for_the_operator_and_names_the_store(
    url: str, told: str
) -> None:
    store = open_store(url)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.read("g", [TopicPartition("t", 0)]),
        lambda: store.write("g", {}),
    ]
    for call in calls:
        with pytest.raises(FatalBrokerError) as refused:
            await call()
        assert str(refused.value).startswith(url.replace("u:s3cr3t@", "***@"))
        assert told in str(refused.value)
    await store.close()


@pytest.mark.parametrize(
    ("url", "missing", "extra"),
    [
        ("sqlite:///x.db", "sqlalchemy", "sql"),
        ("postgresql://db/x", "asyncpg", "sql"),
        ("redis://cache", "redis", "redis"),
    ],
)
def test_a_missing_package_is_told_with_the_command_that_installs_it(
    url: str, missing: str, extra: str
) -> None:
    code = f"""
import sys
sys.modules[{missing!r}] = None
from reactive_kafka import App, MissingExtraError
checkpoint = {{"store": {url!r}}}
app = App({{"incoming": {{"x": {{"group_id": "g", "commit_strategy": "checkpoint", "checkpoint": checkpoint}}}}}})
try:
    app.configure()
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith(f"needs an extra: {how_to_install(extra)}")


def raises(url: str) -> object:
    raise LookupError(url)


def none(url: str) -> object:
    return url


def test_a_package_brings_its_own_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "vault": "reactive_kafka.checkpoint.stores.memory_store:MemoryStore.named",
        "bad": f"{__name__}:raises",
    }
    values |= {"none": f"{__name__}:none", "gone": "no_such_module:store"}
    install_stores(tmp_path, values)
    monkeypatch.syspath_prepend(tmp_path)
    configured("vault://u:s3cr3t@host")
    assert isinstance(open_store("vault://u:s3cr3t@host"), MemoryStore)
    forget("vault://u:s3cr3t@host")
    for scheme, told in (
        ("bad", "cannot be made: LookupError .its text is left out"),
        ("none", "has no read, write, close"),
        ("gone", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
    ):
        with pytest.raises(ValueError, match=told) as refused:
            open_store(f"{scheme}://u:s3cr3t@host")
        assert "s3cr3t" not in str(refused.value)
    with pytest.raises(ValueError, match="cannot be made: LookupError: bad://host/folder"):
        # No secret in it.
        open_store("bad://host/folder")
    with pytest.raises(ValueError, match=r"allowed: .*memory, vault, bad"):
        configured("nothing://")
