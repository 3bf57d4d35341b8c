"""Servers that tests of stores share: one of each for a whole run, started when the first test asks
for it.

Import the fixtures into a conftest. A test takes a group of its own, and restarts nothing that
others use.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.postgres import Postgres, running_postgres
from tests.harness.redis import Redis, running_redis


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL with an empty database."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    """A Redis that keeps what it confirms."""
    with running_redis(durable=True) as server:
        yield server


def sql_url(server: Postgres, driver: str) -> str:
    """The URL of a server's database: for ``asyncpg`` or ``psycopg``."""
    return f"postgresql+{driver}://{server.dsn.removeprefix('postgresql://')}"
