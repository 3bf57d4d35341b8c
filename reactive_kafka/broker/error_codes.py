"""Kafka's error codes: name, whether Kafka calls it retriable, and what we do. Pure.

The table is Kafka's own enum ``org.apache.kafka.common.protocol.Errors``, of the version in
:data:`SOURCE_VERSION`. ``tests/broker/test_error_codes.py`` compares the two;
``tests/broker/Errors.java`` prints Kafka's side.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

SOURCE_VERSION = "4.4.0"
"""The version of ``kafka-clients`` whose codes these are."""


class Act(Enum):
    """What a client does about an error code."""

    OK = "nothing is wrong"
    RETRY = "send the same request again after a pause"
    NEW_CLIENT = (
        "the broker has given up this client's producer or transaction: "
        "a new client sends the records again"
    )
    REJOIN = "this member has lost its partitions: drop the commit, and join again"
    OPERATOR = (
        "an operator must act: readiness has the reason, records wait, "
        "and the request is tried again from time to time"
    )
    REFUSE_RECORD = (
        "the record is refused: nack it, or raise from `send`, and write the records behind it"
    )
    REFUSE = "the request is refused: like REFUSE_RECORD if it was a write, else like OPERATOR"


class ErrorCode(NamedTuple):
    """One of Kafka's error codes."""

    code: int
    name: str
    is_retriable: bool
    """Whether Kafka's exception for it is a ``RetriableException``."""
    act: Act


TABLE: tuple[ErrorCode, ...] = (
    ErrorCode(-1, "UNKNOWN_SERVER_ERROR", False, Act.REFUSE),
    ErrorCode(0, "NONE", False, Act.OK),
    ErrorCode(1, "OFFSET_OUT_OF_RANGE", False, Act.REFUSE),
    ErrorCode(2, "CORRUPT_MESSAGE", True, Act.RETRY),
    ErrorCode(3, "UNKNOWN_TOPIC_OR_PARTITION", True, Act.RETRY),
    ErrorCode(4, "INVALID_FETCH_SIZE", False, Act.REFUSE),
    ErrorCode(5, "LEADER_NOT_AVAILABLE", True, Act.RETRY),
    ErrorCode(6, "NOT_LEADER_OR_FOLLOWER", True, Act.RETRY),
    ErrorCode(7, "REQUEST_TIMED_OUT", True, Act.RETRY),
    ErrorCode(8, "BROKER_NOT_AVAILABLE", False, Act.REFUSE),
    ErrorCode(9, "REPLICA_NOT_AVAILABLE", True, Act.RETRY),
    ErrorCode(10, "MESSAGE_TOO_LARGE", False, Act.REFUSE_RECORD),
    ErrorCode(11, "STALE_CONTROLLER_EPOCH", False, Act.REFUSE),
    ErrorCode(12, "OFFSET_METADATA_TOO_LARGE", False, Act.REFUSE),
    ErrorCode(13, "NETWORK_EXCEPTION", True, Act.RETRY),
    ErrorCode(14, "COORDINATOR_LOAD_IN_PROGRESS", True, Act.RETRY),
    ErrorCode(15, "COORDINATOR_NOT_AVAILABLE", True, Act.RETRY),
    ErrorCode(16, "NOT_COORDINATOR", True, Act.RETRY),
    ErrorCode(17, "INVALID_TOPIC_EXCEPTION", False, Act.REFUSE),
    ErrorCode(18, "RECORD_LIST_TOO_LARGE", False, Act.REFUSE_RECORD),
    ErrorCode(19, "NOT_ENOUGH_REPLICAS", True, Act.RETRY),
    ErrorCode(20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", True, Act.RETRY),
    ErrorCode(21, "INVALID_REQUIRED_ACKS", False, Act.REFUSE),
    ErrorCode(22, "ILLEGAL_GENERATION", False, Act.REJOIN),
    ErrorCode(23, "INCONSISTENT_GROUP_PROTOCOL", False, Act.OPERATOR),
    ErrorCode(24, "INVALID_GROUP_ID", False, Act.OPERATOR),
    ErrorCode(25, "UNKNOWN_MEMBER_ID", False, Act.REJOIN),
    ErrorCode(26, "INVALID_SESSION_TIMEOUT", False, Act.OPERATOR),
    ErrorCode(27, "REBALANCE_IN_PROGRESS", False, Act.RETRY),
    ErrorCode(28, "INVALID_COMMIT_OFFSET_SIZE", False, Act.REFUSE),
    ErrorCode(29, "TOPIC_AUTHORIZATION_FAILED", False, Act.OPERATOR),
    ErrorCode(30, "GROUP_AUTHORIZATION_FAILED", False, Act.OPERATOR),
    ErrorCode(31, "CLUSTER_AUTHORIZATION_FAILED", False, Act.OPERATOR),
    ErrorCode(32, "INVALID_TIMESTAMP", False, Act.REFUSE_RECORD),
    ErrorCode(33, "UNSUPPORTED_SASL_MECHANISM", False, Act.OPERATOR),
    ErrorCode(34, "ILLEGAL_SASL_STATE", False, Act.OPERATOR),
    ErrorCode(35, "UNSUPPORTED_VERSION", False, Act.REFUSE),
    ErrorCode(36, "TOPIC_ALREADY_EXISTS", False, Act.REFUSE),
    ErrorCode(37, "INVALID_PARTITIONS", False, Act.REFUSE),
    ErrorCode(38, "INVALID_REPLICATION_FACTOR", False, Act.REFUSE),
    ErrorCode(39, "INVALID_REPLICA_ASSIGNMENT", False, Act.REFUSE),
    ErrorCode(40, "INVALID_CONFIG", False, Act.REFUSE),
    ErrorCode(41, "NOT_CONTROLLER", True, Act.RETRY),
    ErrorCode(42, "INVALID_REQUEST", False, Act.REFUSE),
    ErrorCode(43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", False, Act.REFUSE),
    ErrorCode(44, "POLICY_VIOLATION", False, Act.REFUSE_RECORD),
    ErrorCode(45, "OUT_OF_ORDER_SEQUENCE_NUMBER", False, Act.NEW_CLIENT),
    ErrorCode(46, "DUPLICATE_SEQUENCE_NUMBER", False, Act.NEW_CLIENT),
    ErrorCode(47, "INVALID_PRODUCER_EPOCH", False, Act.NEW_CLIENT),
    ErrorCode(48, "INVALID_TXN_STATE", False, Act.NEW_CLIENT),
    ErrorCode(49, "INVALID_PRODUCER_ID_MAPPING", False, Act.NEW_CLIENT),
    ErrorCode(50, "INVALID_TRANSACTION_TIMEOUT", False, Act.OPERATOR),
    ErrorCode(51, "CONCURRENT_TRANSACTIONS", True, Act.RETRY),
    ErrorCode(52, "TRANSACTION_COORDINATOR_FENCED", False, Act.NEW_CLIENT),
    ErrorCode(53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", False, Act.OPERATOR),
    ErrorCode(54, "SECURITY_DISABLED", False, Act.OPERATOR),
    ErrorCode(55, "OPERATION_NOT_ATTEMPTED", False, Act.RETRY),
    ErrorCode(56, "KAFKA_STORAGE_ERROR", True, Act.RETRY),
    ErrorCode(57, "LOG_DIR_NOT_FOUND", False, Act.REFUSE),
    ErrorCode(58, "SASL_AUTHENTICATION_FAILED", False, Act.OPERATOR),
    ErrorCode(59, "UNKNOWN_PRODUCER_ID", False, Act.NEW_CLIENT),
    ErrorCode(60, "REASSIGNMENT_IN_PROGRESS", False, Act.REFUSE),
    ErrorCode(61, "DELEGATION_TOKEN_AUTH_DISABLED", False, Act.REFUSE),
    ErrorCode(62, "DELEGATION_TOKEN_NOT_FOUND", False, Act.REFUSE),
    ErrorCode(63, "DELEGATION_TOKEN_OWNER_MISMATCH", False, Act.REFUSE),
    ErrorCode(64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", False, Act.OPERATOR),
    ErrorCode(65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", False, Act.OPERATOR),
    ErrorCode(66, "DELEGATION_TOKEN_EXPIRED", False, Act.OPERATOR),
    ErrorCode(67, "INVALID_PRINCIPAL_TYPE", False, Act.REFUSE),
    ErrorCode(68, "NON_EMPTY_GROUP", False, Act.REFUSE),
    ErrorCode(69, "GROUP_ID_NOT_FOUND", False, Act.REFUSE),
    ErrorCode(70, "FETCH_SESSION_ID_NOT_FOUND", True, Act.RETRY),
    ErrorCode(71, "INVALID_FETCH_SESSION_EPOCH", True, Act.RETRY),
    ErrorCode(72, "LISTENER_NOT_FOUND", True, Act.RETRY),
    ErrorCode(73, "TOPIC_DELETION_DISABLED", False, Act.REFUSE),
    ErrorCode(74, "FENCED_LEADER_EPOCH", True, Act.RETRY),
    ErrorCode(75, "UNKNOWN_LEADER_EPOCH", True, Act.RETRY),
    ErrorCode(76, "UNSUPPORTED_COMPRESSION_TYPE", False, Act.REFUSE),
    ErrorCode(77, "STALE_BROKER_EPOCH", False, Act.REFUSE),
    ErrorCode(78, "OFFSET_NOT_AVAILABLE", True, Act.RETRY),
    ErrorCode(79, "MEMBER_ID_REQUIRED", False, Act.RETRY),
    ErrorCode(80, "PREFERRED_LEADER_NOT_AVAILABLE", True, Act.RETRY),
    ErrorCode(81, "GROUP_MAX_SIZE_REACHED", False, Act.OPERATOR),
    ErrorCode(82, "FENCED_INSTANCE_ID", False, Act.OPERATOR),
    ErrorCode(83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", True, Act.RETRY),
    ErrorCode(84, "ELECTION_NOT_NEEDED", True, Act.RETRY),
    ErrorCode(85, "NO_REASSIGNMENT_IN_PROGRESS", False, Act.REFUSE),
    ErrorCode(86, "GROUP_SUBSCRIBED_TO_TOPIC", False, Act.REFUSE),
    ErrorCode(87, "INVALID_RECORD", False, Act.REFUSE_RECORD),
    ErrorCode(88, "UNSTABLE_OFFSET_COMMIT", True, Act.RETRY),
    ErrorCode(89, "THROTTLING_QUOTA_EXCEEDED", True, Act.RETRY),
    ErrorCode(90, "PRODUCER_FENCED", False, Act.NEW_CLIENT),
    ErrorCode(91, "RESOURCE_NOT_FOUND", False, Act.REFUSE),
    ErrorCode(92, "DUPLICATE_RESOURCE", False, Act.REFUSE),
    ErrorCode(93, "UNACCEPTABLE_CREDENTIAL", False, Act.REFUSE),
    ErrorCode(94, "INCONSISTENT_VOTER_SET", False, Act.REFUSE),
    ErrorCode(95, "INVALID_UPDATE_VERSION", False, Act.REFUSE),
    ErrorCode(96, "FEATURE_UPDATE_FAILED", False, Act.REFUSE),
    ErrorCode(97, "PRINCIPAL_DESERIALIZATION_FAILURE", False, Act.REFUSE),
    ErrorCode(98, "SNAPSHOT_NOT_FOUND", False, Act.REFUSE),
    ErrorCode(99, "POSITION_OUT_OF_RANGE", False, Act.REFUSE),
    ErrorCode(100, "UNKNOWN_TOPIC_ID", True, Act.RETRY),
    ErrorCode(101, "DUPLICATE_BROKER_REGISTRATION", False, Act.REFUSE),
    ErrorCode(102, "BROKER_ID_NOT_REGISTERED", False, Act.REFUSE),
    ErrorCode(103, "INCONSISTENT_TOPIC_ID", True, Act.RETRY),
    ErrorCode(104, "INCONSISTENT_CLUSTER_ID", False, Act.REFUSE),
    ErrorCode(105, "TRANSACTIONAL_ID_NOT_FOUND", False, Act.NEW_CLIENT),
    ErrorCode(106, "FETCH_SESSION_TOPIC_ID_ERROR", True, Act.RETRY),
    ErrorCode(107, "INELIGIBLE_REPLICA", False, Act.REFUSE),
    ErrorCode(108, "NEW_LEADER_ELECTED", False, Act.REFUSE),
    ErrorCode(109, "OFFSET_MOVED_TO_TIERED_STORAGE", False, Act.REFUSE),
    ErrorCode(110, "FENCED_MEMBER_EPOCH", False, Act.REJOIN),
    ErrorCode(111, "UNRELEASED_INSTANCE_ID", False, Act.REFUSE),
    ErrorCode(112, "UNSUPPORTED_ASSIGNOR", False, Act.REFUSE),
    ErrorCode(113, "STALE_MEMBER_EPOCH", False, Act.REJOIN),
    ErrorCode(114, "MISMATCHED_ENDPOINT_TYPE", False, Act.REFUSE),
    ErrorCode(115, "UNSUPPORTED_ENDPOINT_TYPE", False, Act.REFUSE),
    ErrorCode(116, "UNKNOWN_CONTROLLER_ID", False, Act.REFUSE),
    ErrorCode(117, "UNKNOWN_SUBSCRIPTION_ID", False, Act.REFUSE),
    ErrorCode(118, "TELEMETRY_TOO_LARGE", False, Act.REFUSE),
    ErrorCode(119, "INVALID_REGISTRATION", False, Act.REFUSE),
    ErrorCode(120, "TRANSACTION_ABORTABLE", False, Act.NEW_CLIENT),
    ErrorCode(121, "INVALID_RECORD_STATE", False, Act.REFUSE),
    ErrorCode(122, "SHARE_SESSION_NOT_FOUND", True, Act.RETRY),
    ErrorCode(123, "INVALID_SHARE_SESSION_EPOCH", True, Act.RETRY),
    ErrorCode(124, "FENCED_STATE_EPOCH", False, Act.REFUSE),
    ErrorCode(125, "INVALID_VOTER_KEY", False, Act.REFUSE),
    ErrorCode(126, "DUPLICATE_VOTER", False, Act.REFUSE),
    ErrorCode(127, "VOTER_NOT_FOUND", False, Act.REFUSE),
    ErrorCode(128, "INVALID_REGULAR_EXPRESSION", False, Act.REFUSE),
    ErrorCode(129, "REBOOTSTRAP_REQUIRED", False, Act.REFUSE),
    ErrorCode(130, "STREAMS_INVALID_TOPOLOGY", False, Act.REFUSE),
    ErrorCode(131, "STREAMS_INVALID_TOPOLOGY_EPOCH", False, Act.REFUSE),
    ErrorCode(132, "STREAMS_TOPOLOGY_FENCED", False, Act.REFUSE),
    ErrorCode(133, "SHARE_SESSION_LIMIT_REACHED", True, Act.RETRY),
    ErrorCode(134, "GROUP_DELETION_FAILED", False, Act.REFUSE),
    ErrorCode(135, "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", False, Act.REFUSE),
    ErrorCode(136, "CONTROLLER_ID_NOT_REGISTERED", False, Act.REFUSE),
)

KNOWN: Mapping[int, ErrorCode] = {row.code: row for row in TABLE}


def error_code(code: int) -> ErrorCode:
    """Return what is known of a code. An unknown code of a newer Kafka is refused.

    Whether trying it again helps is not known. Kafka's own clients treat such a code as
    UNKNOWN_SERVER_ERROR, which is not retriable either.
    """
    known = KNOWN.get(code)
    return ErrorCode(code, f"UNKNOWN_CODE_{code}", False, Act.REFUSE) if known is None else known
