"""Sends any request of the definitions, with a client.

:func:`call` is the one way to ask a broker something:

    answer = await call(client, node, HEARTBEAT, {"group_id": "billing", "member_id": "m-1", ...})
    if answer["error_code"]: ...

The connection knows from the broker which versions it has. The request goes out in the highest
version that the broker, the definitions and the caller know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from io import BytesIO
from typing import Any, NamedTuple

from reactive_kafka.broker.wire import codec
from reactive_kafka.broker.wire.codec import Values
from reactive_kafka.broker.wire.definitions import API_VERSIONS, REQUEST_HEADER, RESPONSE_HEADER
from reactive_kafka.broker.wire.errors import NoCommonVersionError
from reactive_kafka.broker.wire.schema import Api, versions_of

ANY = "0+"
"""All versions that the definitions have."""


async def call(
    client: Any,
    node: int,
    api: Api,
    values: Values | Callable[[int], Values],
    *,
    versions: str = ANY,
    group: Any = None,
) -> dict[str, Any]:
    """Send a request to a broker, and return the values of its response.

    Cancellation: the request may have been sent, and its response is dropped.

    Args:
        client: A ``KafkaClient``.
        node: The broker's id.
        api: From the definitions.
        values: Of the request's fields. Or a function that makes them for a version, if what has to
            be sent depends on it.
        versions: Those that the caller can use, such as ``2-9``. Say them where a later version
            means another thing: from version 10 on OffsetCommit drops the names of topics.
        group: aiokafka's ``ConnectionGroup``, for requests that wait at the coordinator.

    Raises:
        MessageEncodeError: The values do not fit. Nothing was sent.
        NoCommonVersionError: The broker does not have this request in a known version. Nothing was
            sent.
        MessageDecodeError: The response is damaged. The broker has got the request.
        aiokafka.errors.KafkaError: The client's own errors. Error codes in the response are the
            caller's concern.
    """
    options = {} if group is None else {"group": group}
    answer: Answer = await client.send(node, Request(api, values, versions), **options)
    return answer.values


class Request:
    """A request before its version is known. The client's ``send`` takes it, and returns an Answer.

    It may be sent again, and is encoded once for each broker whose versions differ from the last
    one's.

    Args:
        api: From the definitions.
        values: As in :func:`call`.
        versions: As in :func:`call`. Or a function that returns them for the highest version that
            the broker has.
    """

    def __init__(
        self,
        api: Api,
        values: Values | Callable[[int], Values],
        versions: str | Callable[[int], str] = ANY,
    ) -> None:
        self.API_KEY = api.key
        self.api = api
        self._values = values
        self._versions = versions
        # The lowest and the highest version of the last broker, and the request for it.
        self._prepared_for: tuple[int, int] | None = None
        self._prepared: PreparedRequest | None = None

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> PreparedRequest:
        """Return the request in the highest common version. A connection calls this.

        Args:
            versions: Key of an API -> the lowest and the highest version that the broker has.

        Raises:
            NoCommonVersionError: There is none.
            MessageEncodeError: The values do not fit this version.
        """
        broker = versions.get(self.api.key)
        if self._prepared is None or broker != self._prepared_for:
            version = self._common_version(broker)
            values = self._values(version) if callable(self._values) else self._values
            self._prepared = PreparedRequest(self.api, version, values)
            self._prepared_for = broker
        return self._prepared

    def _common_version(self, broker: tuple[int, int] | None) -> int:
        name = self.api.request.name
        if broker is None:
            raise NoCommonVersionError(f"the broker has no {name}")
        usable = self._versions(broker[1]) if callable(self._versions) else self._versions
        ours = versions_of(self.api.request.versions).shared_with(versions_of(usable))
        common = ours.shared_with(versions_of(f"{broker[0]}-{broker[1]}"))
        if common.first > common.last:
            raise NoCommonVersionError(
                f"{name}: the broker has the versions {broker[0]}-{broker[1]}, "
                f"and this client needs {ours}"
            )
        return common.last


class PreparedRequest:
    """A request in one version, with what a connection needs of it. aiokafka's have the same."""

    def __init__(self, api: Api, version: int, values: Values) -> None:
        self.API_KEY = api.key
        self.API_VERSION = version
        self.FLEXIBLE_VERSION = version in versions_of(api.request.flexible)
        self.RESPONSE_TYPE = ResponseType(api, version)
        self._api = api
        self._content = codec.encode(api.request, version, values)

    def build_request_header(self, correlation_id: int, client_id: str) -> EncodedHeader:
        header = {
            "request_api_key": self.API_KEY,
            "request_api_version": self.API_VERSION,
            "correlation_id": correlation_id,
            "client_id": client_id,
        }
        version = 2 if self.FLEXIBLE_VERSION else 1
        return EncodedHeader(codec.encode(REQUEST_HEADER, version, header))

    def encode(self) -> bytes:
        return self._content

    def parse_response_header(self, buffer: BytesIO) -> ResponseHeader:
        """Read the header of the response, and leave the buffer behind it."""
        # Clients send this request before they know which versions the broker has, so its response
        # keeps the old header.
        is_flexible = self.FLEXIBLE_VERSION and self._api is not API_VERSIONS
        start = buffer.tell()
        values, length = codec.decode_first(RESPONSE_HEADER, int(is_flexible), buffer.read())
        buffer.seek(start + length)
        return ResponseHeader(values["correlation_id"])

    def __repr__(self) -> str:
        # Logged at level DEBUG. The values may hold what is secret.
        return f"{self._api.request.name} v{self.API_VERSION} ({len(self._content)} bytes)"


class EncodedHeader(NamedTuple):
    """The header of a request."""

    content: bytes

    def encode(self) -> bytes:
        return self.content


class ResponseHeader(NamedTuple):
    """The header of a response: the number of its request."""

    correlation_id: int


class ResponseType:
    """Decodes a response, in place of a class of aiokafka's."""

    def __init__(self, api: Api, version: int) -> None:
        self._api = api
        self._version = version

    def decode(self, buffer: BytesIO) -> Answer:
        return Answer(self._api, self._version, buffer.read())


class Answer:
    """The response to a request, not read yet.

    It is read when its values are asked for. A damaged one is then an error of its caller, and not
    of the connection.

    Args:
        api: Of the request.
        version: In which the request was sent, and the response came.
        content: Without the header.
    """

    def __init__(self, api: Api, version: int, content: bytes) -> None:
        self.api = api
        self.version = version
        self.content = content

    @cached_property
    def values(self) -> dict[str, Any]:
        """The values of the response.

        Raises:
            MessageDecodeError: It is damaged.
        """
        return codec.decode(self.api.response, self.version, self.content)

    def __repr__(self) -> str:
        return f"{self.api.response.name} v{self.version} ({len(self.content)} bytes)"
