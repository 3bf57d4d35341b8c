"""The harness's Redis keeps what it confirmed, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness.debian import MissingError
from tests.harness.redis import cached, running_redis


@pytest.mark.redis
@pytest.mark.parametrize("durable", [True, False])
def test_a_kill_keeps_what_was_confirmed_only_where_it_is_durable(durable: bool) -> None:
    with running_redis(durable=durable) as server:
        with server.connect() as client:
            client.set("kept", "yes")
        before, folder = server.pid, server._folder
        server.kill()
        server.start()
        assert server.pid != before
        with server.connect() as client:
            assert client.get("kept") == ("yes" if durable else None)
        pid = server.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not folder.exists()


def test_a_cache_without_a_server_in_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=str(tmp_path)):
        cached(tmp_path)
