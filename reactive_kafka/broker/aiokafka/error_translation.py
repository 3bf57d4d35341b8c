"""Translates errors of aiokafka into ours, which say who must act."""

from __future__ import annotations

from collections.abc import Mapping

import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka.error_classes import code_of
from reactive_kafka.broker.error_codes import Act
from reactive_kafka.errors import (
    BrokerError,
    FatalBrokerError,
    NotOwnerError,
    RejectedRecordError,
    TransientBrokerError,
    describe,
)

NOT_OWNER = (
    kafka_errors.UnknownMemberIdError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.CommitFailedError,
    kafka_errors.IllegalStateError,
)
REMEDIES: Mapping[int, str] = {
    23: (
        "other members of the group divide the partitions in another way: "
        "set assignors to one of theirs, or give this channel another group_id"
    ),
    26: (
        "session.timeout.ms is not between the broker's group.min.session.timeout.ms "
        "and group.max.session.timeout.ms"
    ),
    29: "a right on the topic is missing (READ, or WRITE for what is written)",
    30: "the right READ on the group is missing",
    31: "the right WRITE on a topic is missing, or IDEMPOTENT_WRITE on the cluster",
    53: "the right WRITE on the transactional id is missing",
    81: "the group has as many members as the broker's group.max.size allows",
    87: (
        "the topic is compacted and the record has no key, "
        "or the broker's schema validation rejects it"
    ),
}
"""Error code -> what the operator or the sender can change, if the code's name does not say it."""

KIND_OF: Mapping[Act, type[BrokerError]] = {
    Act.RETRY: TransientBrokerError,
    Act.NEW_CLIENT: TransientBrokerError,
    Act.REJOIN: NotOwnerError,
    Act.OPERATOR: FatalBrokerError,
    Act.REFUSE_RECORD: RejectedRecordError,
    Act.REFUSE: FatalBrokerError,
}
"""What to do about an error code -> our error for it. A refused write is a RejectedRecordError."""

COORDINATOR_MOVED = (
    kafka_errors.GroupCoordinatorNotAvailableError,
    kafka_errors.NotCoordinatorForGroupError,
    kafka_errors.RequestTimedOutError,
)


def translate(error: BaseException, *, is_write: bool = False) -> BrokerError:
    """Return our error, which says who must act. Raise it ``from`` the client's.

    Args:
        error: What the client raised.
        is_write: It is the answer to records that were sent. Then a code that is not retriable
            refuses these records. For any other request only an operator can change it.
    """
    code = code_of(error)
    # The text of a KafkaError begins with its class.
    text = str(error) if isinstance(error, kafka_errors.KafkaError) else describe(error)
    if code is None:
        if isinstance(error, NOT_OWNER):
            return NotOwnerError(text)
        if isinstance(error, kafka_errors.AuthenticationFailedError):
            return FatalBrokerError(text)
        return TransientBrokerError(text)
    if f"[Error {code.code}]" not in text:
        text = f"{text} ([Error {code.code}] {code.name})"
    if (remedy := REMEDIES.get(code.code)) is not None:
        text = f"{text}: {remedy}"
    if is_write and not code.is_retriable and code.act not in (Act.NEW_CLIENT, Act.OPERATOR):
        return RejectedRecordError(text)
    return KIND_OF.get(code.act, TransientBrokerError)(text)
