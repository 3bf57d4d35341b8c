"""One broker for all of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.security.guarded import Guarded, guarded_kafka


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A real Kafka with a listener for each way in."""
    with guarded_kafka(tmp_path_factory.mktemp("certificates")) as broker:
        yield broker
