"""Whether a master can be reached: one of several is enough, and each is given a limited time."""

import socket
from collections.abc import Iterator

import pytest

from reactive_kafka.errors import OffloadError
from reactive_kafka.spark.session.masters import CONNECT_LIMIT_S, reach_master


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_one_of_several_masters_is_enough(listening: int, closed: int) -> None:
    reach_master(f"spark://127.0.0.1:{closed},127.0.0.1:{listening}", "shown")


def test_where_none_is_there_the_url_is_said_once_and_each_reason_once(closed: int) -> None:
    url = f"spark://127.0.0.1:{closed},127.0.0.1:{closed}"
    with pytest.raises(OffloadError) as failed:
        reach_master(url, url)
    assert str(failed.value) == f"no master can be reached at {url}: Connection refused"


def test_a_master_that_does_not_answer_has_a_limited_time() -> None:
    asked = []

    def silent(address: tuple[str, int], limit_s: float) -> None:
        asked.append((address, limit_s))
        raise TimeoutError("timed out")

    with pytest.raises(OffloadError, match="no master can be reached at a cluster: timed out"):
        reach_master("spark://10.0.0.1:7077", "a cluster", silent)
    assert asked == [(("10.0.0.1", 7077), CONNECT_LIMIT_S)]


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://10.0.0.1:443"])
def test_nothing_is_tried_where_there_is_no_standalone_master(master: str) -> None:
    reach_master(master, master, lambda *_: pytest.fail("it was tried"))
