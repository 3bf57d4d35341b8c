"""What a membership needs of the client that it lives in, as protocols."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from reactive_kafka.broker.wire.schema import Api
from reactive_kafka.records import TopicPartition


class GroupRequests(Protocol):
    """Sends requests to the coordinator of one group."""

    async def ask(self, api: Api, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send one request in one attempt, and return the values of its answer.

        Args:
            api: From ``broker.wire.definitions``.
            values: The fields of the request.

        Raises:
            TransientBrokerError: No coordinator is known, or it has not answered in time.
            FatalBrokerError: The coordinator does not have this API, or refuses the login.
        """

    def coordinator_moved(self) -> None:
        """Look for the coordinator again before the next request."""

    async def topic_names(self, ids: Collection[bytes]) -> Mapping[bytes, str]:
        """Return topic id -> name, for those that a broker knows.

        Raises:
            BrokerError: No broker has answered.
        """


class PartitionReader(Protocol):
    """Fetches the partitions that the member owns."""

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """Add partitions. They are not fetched before ``start_at`` has set where each begins."""

    def stop_reading(self, partitions: Collection[TopicPartition]) -> None:
        """Return no more records of these partitions. They are still owned."""

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Remove partitions, and all that was fetched for them."""

    def wake(self) -> None:
        """End a poll that waits, because the next one has an error to raise."""
