"""A request finds the version that both sides have, and its response is read in that version."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from reactive_kafka.broker.wire.codec import encode
from reactive_kafka.broker.wire.definitions import (
    API_VERSIONS,
    HEARTBEAT,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)
from reactive_kafka.broker.wire.errors import (
    MessageDecodeError,
    MessageEncodeError,
    NoCommonVersionError,
)
from reactive_kafka.broker.wire.requests import PreparedRequest, Request, call

BEAT = {"group_id": "billing", "generation_id": 3, "member_id": "m-1"}


class OneBroker:
    """A client whose broker has some versions, and answers everything with the same bytes."""

    def __init__(self, versions: dict[int, tuple[int, int]], content: bytes = b"") -> None:
        self._versions = versions
        self._content = content
        self.sent: list[tuple[int, PreparedRequest, dict[str, Any]]] = []

    async def send(self, node: int, request: Request, **options: Any) -> Any:
        prepared = request.prepare(self._versions)
        self.sent.append((node, prepared, options))
        return prepared.RESPONSE_TYPE.decode(BytesIO(self._content))


async def test_a_call_returns_the_values_of_the_response() -> None:
    content = encode(HEARTBEAT.response, 4, {"error_code": 27})
    broker = OneBroker({12: (0, 4)}, content)
    answer = await call(broker, 7, HEARTBEAT, BEAT)
    assert answer == {"throttle_time_ms": 0, "error_code": 27}
    ((node, request, options),) = broker.sent
    assert (node, request.API_VERSION, options) == (7, 4, {})
    assert request.encode() == encode(HEARTBEAT.request, 4, BEAT)
    await call(broker, 7, HEARTBEAT, BEAT, group=1)
    assert broker.sent[-1][2] == {"group": 1}


@pytest.mark.parametrize(
    ("of_broker", "wanted", "chosen"),
    [
        ((0, 4), "0+", 4),
        ((0, 99), "0+", 4),
        ((0, 2), "0+", 2),
        ((3, 99), "1-3", 3),
        ((0, 99), "2", 2),
    ],
)
def test_the_highest_common_version_is_chosen(
    of_broker: tuple[int, int], wanted: str, chosen: int
) -> None:
    request = Request(HEARTBEAT, BEAT, wanted).prepare({12: of_broker})
    sent = (request.API_KEY, request.API_VERSION)
    assert sent == (12, chosen)
    assert request.FLEXIBLE_VERSION is (chosen == 4)


def test_a_request_that_is_sent_again_is_encoded_again_only_for_other_versions() -> None:
    asked_for: list[int] = []

    def values(version: int) -> dict[str, Any]:
        asked_for.append(version)
        return BEAT

    request = Request(HEARTBEAT, values)
    first = request.prepare({12: (0, 4)})
    assert request.prepare({12: (0, 4), 13: (0, 1)}) is first
    assert asked_for == [4]
    # Another broker, during an upgrade.
    older = request.prepare({12: (0, 3)})
    assert older.API_VERSION == 3
    assert older.encode() == encode(HEARTBEAT.request, 3, BEAT)
    assert request.prepare({12: (0, 4)}).encode() == first.encode()
    with pytest.raises(NoCommonVersionError):
        request.prepare({})


@pytest.mark.parametrize(
    ("of_broker", "wanted", "error"),
    [
        ({}, "0+", "the broker has no HeartbeatRequest"),
        ({12: (5, 9)}, "0+", "the broker has the versions 5-9, and this client needs 0-4"),
        ({12: (0, 2)}, "3+", "the broker has the versions 0-2, and this client needs 3-4"),
        ({12: (4, 4)}, "1-3", "the broker has the versions 4-4, and this client needs 1-3"),
    ],
)
def test_without_a_common_version_nothing_is_sent(
    of_broker: dict[int, tuple[int, int]], wanted: str, error: str
) -> None:
    with pytest.raises(NoCommonVersionError, match=error):
        Request(HEARTBEAT, BEAT, wanted).prepare(of_broker)


def test_values_may_depend_on_the_version() -> None:
    def values(version: int) -> dict[str, Any]:
        return {"group_id": "g"} if version < 8 else {"groups": [{"group_id": "g"}]}

    for version in (7, 8):
        prepared = Request(OFFSET_FETCH, values).prepare({9: (0, version)})
        assert prepared.encode() == encode(OFFSET_FETCH.request, version, values(version))


def test_values_that_do_not_fit_the_version_are_an_error() -> None:
    with pytest.raises(MessageEncodeError, match="HeartbeatRequest v2 has no group_instance_id"):
        Request(HEARTBEAT, {**BEAT, "group_instance_id": "i"}).prepare({12: (0, 2)})


async def test_a_damaged_response_is_an_error_of_the_caller() -> None:
    broker = OneBroker({12: (0, 4)}, b"\x00\x00")
    with pytest.raises(MessageDecodeError, match="HeartbeatResponse v4, throttle_time_ms: the 2 b"):
        await call(broker, 1, HEARTBEAT, BEAT)
    assert len(broker.sent) == 1


@pytest.mark.parametrize(("version", "head"), [(3, b""), (4, b"\x00"), (4, b"\x01\x05\x02ab")])
def test_the_header_of_a_response_is_read_and_its_tags_are_skipped(
    version: int, head: bytes
) -> None:
    request = Request(HEARTBEAT, BEAT, str(version)).prepare({12: (0, 4)})
    buffer = BytesIO(b"\x00\x00\x00\x2a" + head + b"rest")
    assert request.parse_response_header(buffer).correlation_id == 42
    assert buffer.read() == b"rest"


def test_the_response_with_the_versions_keeps_the_old_header() -> None:
    request = Request(API_VERSIONS, {}).prepare({18: (0, 4)})
    assert request.FLEXIBLE_VERSION
    buffer = BytesIO(b"\x00\x00\x00\x2arest")
    assert request.parse_response_header(buffer).correlation_id == 42
    assert buffer.read() == b"rest"


def test_a_log_line_shows_no_values() -> None:
    request = Request(OFFSET_COMMIT, {"group_id": "secret"}, "2-9").prepare({8: (0, 9)})
    answer = request.RESPONSE_TYPE.decode(BytesIO(b"secret"))
    assert repr(request) == f"OffsetCommitRequest v9 ({len(request.encode())} bytes)"
    assert repr(answer) == "OffsetCommitResponse v9 (6 bytes)"
