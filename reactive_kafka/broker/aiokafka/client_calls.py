"""Calls of aiokafka's clients: with a deadline, and with our errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka.client_log import as_ours
from reactive_kafka.broker.aiokafka.error_translation import translate
from reactive_kafka.errors import (
    TransientBrokerError,
)

T = TypeVar("T")
CALL_DEADLINE_S = 5.0


async def within(deadline_s: float, call: Awaitable[T], doing: str, *, is_write: bool = False) -> T:
    """Await a call of the client under a deadline, with its errors translated.

    The client's own retries have no deadline (H5). *is_write*: as in :func:`translate`.
    """
    try:
        with as_ours():
            async with asyncio.timeout(deadline_s):
                return await call
    except TimeoutError as error:
        raise TransientBrokerError(f"{doing}: no answer within {deadline_s:g} s") from error
    except (
        kafka_errors.KafkaError,
        kafka_errors.IllegalOperation,
        kafka_errors.ConsumerStoppedError,
    ) as error:
        raise translate(error, is_write=is_write) from error
    except OSError as error:
        raise TransientBrokerError(f"{doing}: {error}") from error
