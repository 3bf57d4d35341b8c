"""The messages of Kafka that this package sends and reads. Pure data.

Written from the definitions in kafka-clients 4.4.0. Do not change it by hand. Run
``python -m tests.broker.wire.kafka_definitions --write``, which also has the list of messages.
"""

from __future__ import annotations

from reactive_kafka.broker.wire.schema import Api, WireField, WireMessage

FETCH = Api(
    key=1,
    request=WireMessage(
        "FetchRequest",
        versions="4-18",
        flexible="12+",
        fields=(
            WireField(
                "cluster_id",
                "string",
                "12+",
                nullable="12+",
                tagged="12+",
                tag=0,
                default=None,
                ignorable=True,
            ),
            WireField("replica_id", "int32", "0-14", default=-1),
            WireField(
                "replica_state",
                "ReplicaState",
                "15+",
                tagged="15+",
                tag=1,
                fields=(
                    WireField("replica_id", "int32", "15+", default=-1),
                    WireField("replica_epoch", "int64", "15+", default=-1),
                ),
            ),
            WireField("max_wait_ms", "int32", "0+"),
            WireField("min_bytes", "int32", "0+"),
            WireField("max_bytes", "int32", "3+", default=2147483647, ignorable=True),
            WireField("isolation_level", "int8", "4+", ignorable=True),
            WireField("session_id", "int32", "7+", ignorable=True),
            WireField("session_epoch", "int32", "7+", default=-1, ignorable=True),
            WireField(
                "topics",
                "[]FetchTopic",
                "0+",
                fields=(
                    WireField("topic", "string", "0-12", ignorable=True),
                    WireField("topic_id", "uuid", "13+", ignorable=True),
                    WireField(
                        "partitions",
                        "[]FetchPartition",
                        "0+",
                        fields=(
                            WireField("partition", "int32", "0+"),
                            WireField(
                                "current_leader_epoch", "int32", "9+", default=-1, ignorable=True
                            ),
                            WireField("fetch_offset", "int64", "0+"),
                            WireField("last_fetched_epoch", "int32", "12+", default=-1),
                            WireField(
                                "log_start_offset", "int64", "5+", default=-1, ignorable=True
                            ),
                            WireField("partition_max_bytes", "int32", "0+"),
                            WireField(
                                "replica_directory_id",
                                "uuid",
                                "17+",
                                tagged="17+",
                                tag=0,
                                ignorable=True,
                            ),
                            WireField(
                                "high_watermark",
                                "int64",
                                "18+",
                                tagged="18+",
                                tag=1,
                                default=9223372036854775807,
                                ignorable=True,
                            ),
                        ),
                    ),
                ),
            ),
            WireField(
                "forgotten_topics_data",
                "[]ForgottenTopic",
                "7+",
                fields=(
                    WireField("topic", "string", "7-12", ignorable=True),
                    WireField("topic_id", "uuid", "13+", ignorable=True),
                    WireField("partitions", "[]int32", "7+"),
                ),
            ),
            WireField("rack_id", "string", "11+", ignorable=True),
        ),
    ),
    response=WireMessage(
        "FetchResponse",
        versions="4-18",
        flexible="12+",
        fields=(
            WireField("throttle_time_ms", "int32", "1+", ignorable=True),
            WireField("error_code", "int16", "7+", ignorable=True),
            WireField("session_id", "int32", "7+"),
            WireField(
                "responses",
                "[]FetchableTopicResponse",
                "0+",
                fields=(
                    WireField("topic", "string", "0-12", ignorable=True),
                    WireField("topic_id", "uuid", "13+", ignorable=True),
                    WireField(
                        "partitions",
                        "[]PartitionData",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("error_code", "int16", "0+"),
                            WireField("high_watermark", "int64", "0+"),
                            WireField(
                                "last_stable_offset", "int64", "4+", default=-1, ignorable=True
                            ),
                            WireField(
                                "log_start_offset", "int64", "5+", default=-1, ignorable=True
                            ),
                            WireField(
                                "diverging_epoch",
                                "EpochEndOffset",
                                "12+",
                                tagged="12+",
                                tag=0,
                                fields=(
                                    WireField("epoch", "int32", "12+", default=-1),
                                    WireField("end_offset", "int64", "12+", default=-1),
                                ),
                            ),
                            WireField(
                                "current_leader",
                                "LeaderIdAndEpoch",
                                "12+",
                                tagged="12+",
                                tag=1,
                                fields=(
                                    WireField("leader_id", "int32", "12+", default=-1),
                                    WireField("leader_epoch", "int32", "12+", default=-1),
                                ),
                            ),
                            WireField(
                                "snapshot_id",
                                "SnapshotId",
                                "12+",
                                tagged="12+",
                                tag=2,
                                fields=(
                                    WireField("end_offset", "int64", "0+", default=-1),
                                    WireField("epoch", "int32", "0+", default=-1),
                                ),
                            ),
                            WireField(
                                "aborted_transactions",
                                "[]AbortedTransaction",
                                "4+",
                                nullable="4+",
                                ignorable=True,
                                fields=(
                                    WireField("producer_id", "int64", "4+"),
                                    WireField("first_offset", "int64", "4+"),
                                ),
                            ),
                            WireField("preferred_read_replica", "int32", "11+", default=-1),
                            WireField("records", "records", "0+", nullable="0+"),
                        ),
                    ),
                ),
            ),
            WireField(
                "node_endpoints",
                "[]NodeEndpoint",
                "16+",
                tagged="16+",
                tag=0,
                fields=(
                    WireField("node_id", "int32", "16+"),
                    WireField("host", "string", "16+"),
                    WireField("port", "int32", "16+"),
                    WireField("rack", "string", "16+", nullable="16+", default=None),
                ),
            ),
        ),
    ),
)

LIST_OFFSETS = Api(
    key=2,
    request=WireMessage(
        "ListOffsetsRequest",
        versions="1-11",
        flexible="6+",
        fields=(
            WireField("replica_id", "int32", "0+"),
            WireField("isolation_level", "int8", "2+"),
            WireField(
                "topics",
                "[]ListOffsetsTopic",
                "0+",
                fields=(
                    WireField("name", "string", "0+"),
                    WireField(
                        "partitions",
                        "[]ListOffsetsPartition",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField(
                                "current_leader_epoch", "int32", "4+", default=-1, ignorable=True
                            ),
                            WireField("timestamp", "int64", "0+"),
                        ),
                    ),
                ),
            ),
            WireField("timeout_ms", "int32", "10+", ignorable=True),
        ),
    ),
    response=WireMessage(
        "ListOffsetsResponse",
        versions="1-11",
        flexible="6+",
        fields=(
            WireField("throttle_time_ms", "int32", "2+", ignorable=True),
            WireField(
                "topics",
                "[]ListOffsetsTopicResponse",
                "0+",
                fields=(
                    WireField("name", "string", "0+"),
                    WireField(
                        "partitions",
                        "[]ListOffsetsPartitionResponse",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("error_code", "int16", "0+"),
                            WireField("timestamp", "int64", "1+", default=-1),
                            WireField("offset", "int64", "1+", default=-1),
                            WireField("leader_epoch", "int32", "4+", default=-1),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

METADATA = Api(
    key=3,
    request=WireMessage(
        "MetadataRequest",
        versions="0-13",
        flexible="9+",
        fields=(
            WireField(
                "topics",
                "[]MetadataRequestTopic",
                "0+",
                nullable="1+",
                fields=(
                    WireField("topic_id", "uuid", "10+", ignorable=True),
                    WireField("name", "string", "0+", nullable="10+"),
                ),
            ),
            WireField("allow_auto_topic_creation", "bool", "4+", default=True),
            WireField("include_cluster_authorized_operations", "bool", "8-10"),
            WireField("include_topic_authorized_operations", "bool", "8+"),
        ),
    ),
    response=WireMessage(
        "MetadataResponse",
        versions="0-13",
        flexible="9+",
        fields=(
            WireField("throttle_time_ms", "int32", "3+", ignorable=True),
            WireField(
                "brokers",
                "[]MetadataResponseBroker",
                "0+",
                fields=(
                    WireField("node_id", "int32", "0+"),
                    WireField("host", "string", "0+"),
                    WireField("port", "int32", "0+"),
                    WireField("rack", "string", "1+", nullable="1+", default=None, ignorable=True),
                ),
            ),
            WireField("cluster_id", "string", "2+", nullable="2+", default=None, ignorable=True),
            WireField("controller_id", "int32", "1+", default=-1, ignorable=True),
            WireField(
                "topics",
                "[]MetadataResponseTopic",
                "0+",
                fields=(
                    WireField("error_code", "int16", "0+"),
                    WireField("name", "string", "0+", nullable="12+"),
                    WireField("topic_id", "uuid", "10+", ignorable=True),
                    WireField("is_internal", "bool", "1+", ignorable=True),
                    WireField(
                        "partitions",
                        "[]MetadataResponsePartition",
                        "0+",
                        fields=(
                            WireField("error_code", "int16", "0+"),
                            WireField("partition_index", "int32", "0+"),
                            WireField("leader_id", "int32", "0+"),
                            WireField("leader_epoch", "int32", "7+", default=-1, ignorable=True),
                            WireField("replica_nodes", "[]int32", "0+"),
                            WireField("isr_nodes", "[]int32", "0+"),
                            WireField("offline_replicas", "[]int32", "5+", ignorable=True),
                        ),
                    ),
                    WireField("topic_authorized_operations", "int32", "8+", default=-2147483648),
                ),
            ),
            WireField("cluster_authorized_operations", "int32", "8-10", default=-2147483648),
            WireField("error_code", "int16", "13+", ignorable=True),
        ),
    ),
)

OFFSET_COMMIT = Api(
    key=8,
    request=WireMessage(
        "OffsetCommitRequest",
        versions="2-10",
        flexible="8+",
        fields=(
            WireField("group_id", "string", "0+"),
            WireField("generation_id_or_member_epoch", "int32", "1+", default=-1, ignorable=True),
            WireField("member_id", "string", "1+", ignorable=True),
            WireField("group_instance_id", "string", "7+", nullable="7+", default=None),
            WireField("retention_time_ms", "int64", "2-4", default=-1, ignorable=True),
            WireField(
                "topics",
                "[]OffsetCommitRequestTopic",
                "0+",
                fields=(
                    WireField("name", "string", "0-9", ignorable=True),
                    WireField("topic_id", "uuid", "10+", ignorable=True),
                    WireField(
                        "partitions",
                        "[]OffsetCommitRequestPartition",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("committed_offset", "int64", "0+"),
                            WireField(
                                "committed_leader_epoch", "int32", "6+", default=-1, ignorable=True
                            ),
                            WireField("committed_metadata", "string", "0+", nullable="0+"),
                        ),
                    ),
                ),
            ),
        ),
    ),
    response=WireMessage(
        "OffsetCommitResponse",
        versions="2-10",
        flexible="8+",
        fields=(
            WireField("throttle_time_ms", "int32", "3+", ignorable=True),
            WireField(
                "topics",
                "[]OffsetCommitResponseTopic",
                "0+",
                fields=(
                    WireField("name", "string", "0-9", ignorable=True),
                    WireField("topic_id", "uuid", "10+", ignorable=True),
                    WireField(
                        "partitions",
                        "[]OffsetCommitResponsePartition",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("error_code", "int16", "0+"),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

OFFSET_FETCH = Api(
    key=9,
    request=WireMessage(
        "OffsetFetchRequest",
        versions="1-10",
        flexible="6+",
        fields=(
            WireField("group_id", "string", "0-7"),
            WireField(
                "topics",
                "[]OffsetFetchRequestTopic",
                "0-7",
                nullable="2-7",
                fields=(
                    WireField("name", "string", "0-7"),
                    WireField("partition_indexes", "[]int32", "0-7"),
                ),
            ),
            WireField(
                "groups",
                "[]OffsetFetchRequestGroup",
                "8+",
                fields=(
                    WireField("group_id", "string", "8+"),
                    WireField(
                        "member_id", "string", "9+", nullable="9+", default=None, ignorable=True
                    ),
                    WireField("member_epoch", "int32", "9+", default=-1, ignorable=True),
                    WireField(
                        "topics",
                        "[]OffsetFetchRequestTopics",
                        "8+",
                        nullable="8+",
                        fields=(
                            WireField("name", "string", "8-9", ignorable=True),
                            WireField("topic_id", "uuid", "10+", ignorable=True),
                            WireField("partition_indexes", "[]int32", "8+"),
                        ),
                    ),
                ),
            ),
            WireField("require_stable", "bool", "7+"),
        ),
    ),
    response=WireMessage(
        "OffsetFetchResponse",
        versions="1-10",
        flexible="6+",
        fields=(
            WireField("throttle_time_ms", "int32", "3+", ignorable=True),
            WireField(
                "topics",
                "[]OffsetFetchResponseTopic",
                "0-7",
                fields=(
                    WireField("name", "string", "0-7"),
                    WireField(
                        "partitions",
                        "[]OffsetFetchResponsePartition",
                        "0-7",
                        fields=(
                            WireField("partition_index", "int32", "0-7"),
                            WireField("committed_offset", "int64", "0-7"),
                            WireField(
                                "committed_leader_epoch", "int32", "5-7", default=-1, ignorable=True
                            ),
                            WireField("metadata", "string", "0-7", nullable="0-7"),
                            WireField("error_code", "int16", "0-7"),
                        ),
                    ),
                ),
            ),
            WireField("error_code", "int16", "2-7", ignorable=True),
            WireField(
                "groups",
                "[]OffsetFetchResponseGroup",
                "8+",
                fields=(
                    WireField("group_id", "string", "8+"),
                    WireField(
                        "topics",
                        "[]OffsetFetchResponseTopics",
                        "8+",
                        fields=(
                            WireField("name", "string", "8-9", ignorable=True),
                            WireField("topic_id", "uuid", "10+", ignorable=True),
                            WireField(
                                "partitions",
                                "[]OffsetFetchResponsePartitions",
                                "8+",
                                fields=(
                                    WireField("partition_index", "int32", "8+"),
                                    WireField("committed_offset", "int64", "8+"),
                                    WireField(
                                        "committed_leader_epoch",
                                        "int32",
                                        "8+",
                                        default=-1,
                                        ignorable=True,
                                    ),
                                    WireField("metadata", "string", "8+", nullable="8+"),
                                    WireField("error_code", "int16", "8+"),
                                ),
                            ),
                        ),
                    ),
                    WireField("error_code", "int16", "8+"),
                ),
            ),
        ),
    ),
)

FIND_COORDINATOR = Api(
    key=10,
    request=WireMessage(
        "FindCoordinatorRequest",
        versions="0-6",
        flexible="3+",
        fields=(
            WireField("key", "string", "0-3"),
            WireField("key_type", "int8", "1+"),
            WireField("coordinator_keys", "[]string", "4+"),
        ),
    ),
    response=WireMessage(
        "FindCoordinatorResponse",
        versions="0-6",
        flexible="3+",
        fields=(
            WireField("throttle_time_ms", "int32", "1+", ignorable=True),
            WireField("error_code", "int16", "0-3"),
            WireField("error_message", "string", "1-3", nullable="1-3", ignorable=True),
            WireField("node_id", "int32", "0-3"),
            WireField("host", "string", "0-3"),
            WireField("port", "int32", "0-3"),
            WireField(
                "coordinators",
                "[]Coordinator",
                "4+",
                fields=(
                    WireField("key", "string", "4+"),
                    WireField("node_id", "int32", "4+"),
                    WireField("host", "string", "4+"),
                    WireField("port", "int32", "4+"),
                    WireField("error_code", "int16", "4+"),
                    WireField("error_message", "string", "4+", nullable="4+", ignorable=True),
                ),
            ),
        ),
    ),
)

JOIN_GROUP = Api(
    key=11,
    request=WireMessage(
        "JoinGroupRequest",
        versions="0-9",
        flexible="6+",
        fields=(
            WireField("group_id", "string", "0+"),
            WireField("session_timeout_ms", "int32", "0+"),
            WireField("rebalance_timeout_ms", "int32", "1+", default=-1, ignorable=True),
            WireField("member_id", "string", "0+"),
            WireField("group_instance_id", "string", "5+", nullable="5+", default=None),
            WireField("protocol_type", "string", "0+"),
            WireField(
                "protocols",
                "[]JoinGroupRequestProtocol",
                "0+",
                fields=(
                    WireField("name", "string", "0+"),
                    WireField("metadata", "bytes", "0+"),
                ),
            ),
            WireField("reason", "string", "8+", nullable="8+", default=None, ignorable=True),
        ),
    ),
    response=WireMessage(
        "JoinGroupResponse",
        versions="0-9",
        flexible="6+",
        fields=(
            WireField("throttle_time_ms", "int32", "2+", ignorable=True),
            WireField("error_code", "int16", "0+"),
            WireField("generation_id", "int32", "0+", default=-1),
            WireField("protocol_type", "string", "7+", nullable="7+", default=None, ignorable=True),
            WireField("protocol_name", "string", "0+", nullable="7+"),
            WireField("leader", "string", "0+"),
            WireField("skip_assignment", "bool", "9+"),
            WireField("member_id", "string", "0+"),
            WireField(
                "members",
                "[]JoinGroupResponseMember",
                "0+",
                fields=(
                    WireField("member_id", "string", "0+"),
                    WireField(
                        "group_instance_id",
                        "string",
                        "5+",
                        nullable="5+",
                        default=None,
                        ignorable=True,
                    ),
                    WireField("metadata", "bytes", "0+"),
                ),
            ),
        ),
    ),
)

HEARTBEAT = Api(
    key=12,
    request=WireMessage(
        "HeartbeatRequest",
        versions="0-4",
        flexible="4+",
        fields=(
            WireField("group_id", "string", "0+"),
            WireField("generation_id", "int32", "0+"),
            WireField("member_id", "string", "0+"),
            WireField("group_instance_id", "string", "3+", nullable="3+", default=None),
        ),
    ),
    response=WireMessage(
        "HeartbeatResponse",
        versions="0-4",
        flexible="4+",
        fields=(
            WireField("throttle_time_ms", "int32", "1+", ignorable=True),
            WireField("error_code", "int16", "0+"),
        ),
    ),
)

LEAVE_GROUP = Api(
    key=13,
    request=WireMessage(
        "LeaveGroupRequest",
        versions="0-5",
        flexible="4+",
        fields=(
            WireField("group_id", "string", "0+"),
            WireField("member_id", "string", "0-2"),
            WireField(
                "members",
                "[]MemberIdentity",
                "3+",
                fields=(
                    WireField("member_id", "string", "3+"),
                    WireField("group_instance_id", "string", "3+", nullable="3+", default=None),
                    WireField(
                        "reason", "string", "5+", nullable="5+", default=None, ignorable=True
                    ),
                ),
            ),
        ),
    ),
    response=WireMessage(
        "LeaveGroupResponse",
        versions="0-5",
        flexible="4+",
        fields=(
            WireField("throttle_time_ms", "int32", "1+", ignorable=True),
            WireField("error_code", "int16", "0+"),
            WireField(
                "members",
                "[]MemberResponse",
                "3+",
                fields=(
                    WireField("member_id", "string", "3+"),
                    WireField("group_instance_id", "string", "3+", nullable="3+"),
                    WireField("error_code", "int16", "3+"),
                ),
            ),
        ),
    ),
)

SYNC_GROUP = Api(
    key=14,
    request=WireMessage(
        "SyncGroupRequest",
        versions="0-5",
        flexible="4+",
        fields=(
            WireField("group_id", "string", "0+"),
            WireField("generation_id", "int32", "0+"),
            WireField("member_id", "string", "0+"),
            WireField("group_instance_id", "string", "3+", nullable="3+", default=None),
            WireField("protocol_type", "string", "5+", nullable="5+", default=None, ignorable=True),
            WireField("protocol_name", "string", "5+", nullable="5+", default=None, ignorable=True),
            WireField(
                "assignments",
                "[]SyncGroupRequestAssignment",
                "0+",
                fields=(
                    WireField("member_id", "string", "0+"),
                    WireField("assignment", "bytes", "0+"),
                ),
            ),
        ),
    ),
    response=WireMessage(
        "SyncGroupResponse",
        versions="0-5",
        flexible="4+",
        fields=(
            WireField("throttle_time_ms", "int32", "1+", ignorable=True),
            WireField("error_code", "int16", "0+"),
            WireField("protocol_type", "string", "5+", nullable="5+", default=None, ignorable=True),
            WireField("protocol_name", "string", "5+", nullable="5+", default=None, ignorable=True),
            WireField("assignment", "bytes", "0+"),
        ),
    ),
)

DESCRIBE_GROUPS = Api(
    key=15,
    request=WireMessage(
        "DescribeGroupsRequest",
        versions="0-6",
        flexible="5+",
        fields=(
            WireField("groups", "[]string", "0+"),
            WireField("include_authorized_operations", "bool", "3+"),
        ),
    ),
    response=WireMessage(
        "DescribeGroupsResponse",
        versions="0-6",
        flexible="5+",
        fields=(
            WireField("throttle_time_ms", "int32", "1+", ignorable=True),
            WireField(
                "groups",
                "[]DescribedGroup",
                "0+",
                fields=(
                    WireField("error_code", "int16", "0+"),
                    WireField("error_message", "string", "6+", nullable="6+", default=None),
                    WireField("group_id", "string", "0+"),
                    WireField("group_state", "string", "0+"),
                    WireField("protocol_type", "string", "0+"),
                    WireField("protocol_data", "string", "0+"),
                    WireField(
                        "members",
                        "[]DescribedGroupMember",
                        "0+",
                        fields=(
                            WireField("member_id", "string", "0+"),
                            WireField(
                                "group_instance_id",
                                "string",
                                "4+",
                                nullable="4+",
                                default=None,
                                ignorable=True,
                            ),
                            WireField("client_id", "string", "0+"),
                            WireField("client_host", "string", "0+"),
                            WireField("member_metadata", "bytes", "0+"),
                            WireField("member_assignment", "bytes", "0+"),
                        ),
                    ),
                    WireField("authorized_operations", "int32", "3+", default=-2147483648),
                ),
            ),
        ),
    ),
)

LIST_GROUPS = Api(
    key=16,
    request=WireMessage(
        "ListGroupsRequest",
        versions="0-5",
        flexible="3+",
        fields=(
            WireField("states_filter", "[]string", "4+"),
            WireField("types_filter", "[]string", "5+"),
        ),
    ),
    response=WireMessage(
        "ListGroupsResponse",
        versions="0-5",
        flexible="3+",
        fields=(
            WireField("throttle_time_ms", "int32", "1+", ignorable=True),
            WireField("error_code", "int16", "0+"),
            WireField(
                "groups",
                "[]ListedGroup",
                "0+",
                fields=(
                    WireField("group_id", "string", "0+"),
                    WireField("protocol_type", "string", "0+"),
                    WireField("group_state", "string", "4+", ignorable=True),
                    WireField("group_type", "string", "5+", ignorable=True),
                ),
            ),
        ),
    ),
)

SASL_HANDSHAKE = Api(
    key=17,
    request=WireMessage(
        "SaslHandshakeRequest",
        versions="0-1",
        flexible="none",
        fields=(WireField("mechanism", "string", "0+"),),
    ),
    response=WireMessage(
        "SaslHandshakeResponse",
        versions="0-1",
        flexible="none",
        fields=(
            WireField("error_code", "int16", "0+"),
            WireField("mechanisms", "[]string", "0+"),
        ),
    ),
)

API_VERSIONS = Api(
    key=18,
    request=WireMessage(
        "ApiVersionsRequest",
        versions="0-5",
        flexible="3+",
        fields=(
            WireField("client_software_name", "string", "3+", ignorable=True),
            WireField("client_software_version", "string", "3+", ignorable=True),
            WireField("cluster_id", "string", "5+", nullable="5+", default=None, ignorable=True),
            WireField("node_id", "int32", "5+", default=-1, ignorable=True),
        ),
    ),
    response=WireMessage(
        "ApiVersionsResponse",
        versions="0-5",
        flexible="3+",
        fields=(
            WireField("error_code", "int16", "0+"),
            WireField(
                "api_keys",
                "[]ApiVersion",
                "0+",
                fields=(
                    WireField("api_key", "int16", "0+"),
                    WireField("min_version", "int16", "0+"),
                    WireField("max_version", "int16", "0+"),
                ),
            ),
            WireField("throttle_time_ms", "int32", "1+", ignorable=True),
            WireField(
                "supported_features",
                "[]SupportedFeatureKey",
                "3+",
                tagged="3+",
                tag=0,
                ignorable=True,
                fields=(
                    WireField("name", "string", "3+"),
                    WireField("min_version", "int16", "3+"),
                    WireField("max_version", "int16", "3+"),
                ),
            ),
            WireField(
                "finalized_features_epoch",
                "int64",
                "3+",
                tagged="3+",
                tag=1,
                default=-1,
                ignorable=True,
            ),
            WireField(
                "finalized_features",
                "[]FinalizedFeatureKey",
                "3+",
                tagged="3+",
                tag=2,
                ignorable=True,
                fields=(
                    WireField("name", "string", "3+"),
                    WireField("max_version_level", "int16", "3+"),
                    WireField("min_version_level", "int16", "3+"),
                ),
            ),
            WireField("zk_migration_ready", "bool", "3+", tagged="3+", tag=3, ignorable=True),
        ),
    ),
)

CREATE_TOPICS = Api(
    key=19,
    request=WireMessage(
        "CreateTopicsRequest",
        versions="2-7",
        flexible="5+",
        fields=(
            WireField(
                "topics",
                "[]CreatableTopic",
                "0+",
                fields=(
                    WireField("name", "string", "0+"),
                    WireField("num_partitions", "int32", "0+"),
                    WireField("replication_factor", "int16", "0+"),
                    WireField(
                        "assignments",
                        "[]CreatableReplicaAssignment",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("broker_ids", "[]int32", "0+"),
                        ),
                    ),
                    WireField(
                        "configs",
                        "[]CreatableTopicConfig",
                        "0+",
                        fields=(
                            WireField("name", "string", "0+"),
                            WireField("value", "string", "0+", nullable="0+"),
                        ),
                    ),
                ),
            ),
            WireField("timeout_ms", "int32", "0+", default=60000),
            WireField("validate_only", "bool", "1+"),
        ),
    ),
    response=WireMessage(
        "CreateTopicsResponse",
        versions="2-7",
        flexible="5+",
        fields=(
            WireField("throttle_time_ms", "int32", "2+", ignorable=True),
            WireField(
                "topics",
                "[]CreatableTopicResult",
                "0+",
                fields=(
                    WireField("name", "string", "0+"),
                    WireField("topic_id", "uuid", "7+", ignorable=True),
                    WireField("error_code", "int16", "0+"),
                    WireField("error_message", "string", "1+", nullable="0+", ignorable=True),
                    WireField(
                        "topic_config_error_code", "int16", "5+", tagged="5+", tag=0, ignorable=True
                    ),
                    WireField("num_partitions", "int32", "5+", default=-1, ignorable=True),
                    WireField("replication_factor", "int16", "5+", default=-1, ignorable=True),
                    WireField(
                        "configs",
                        "[]CreatableTopicConfigs",
                        "5+",
                        nullable="5+",
                        ignorable=True,
                        fields=(
                            WireField("name", "string", "5+"),
                            WireField("value", "string", "5+", nullable="5+"),
                            WireField("read_only", "bool", "5+"),
                            WireField("config_source", "int8", "5+", default=-1, ignorable=True),
                            WireField("is_sensitive", "bool", "5+"),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

DELETE_TOPICS = Api(
    key=20,
    request=WireMessage(
        "DeleteTopicsRequest",
        versions="1-6",
        flexible="4+",
        fields=(
            WireField(
                "topics",
                "[]DeleteTopicState",
                "6+",
                fields=(
                    WireField("name", "string", "6+", nullable="6+", default=None),
                    WireField("topic_id", "uuid", "6+"),
                ),
            ),
            WireField("topic_names", "[]string", "0-5", ignorable=True),
            WireField("timeout_ms", "int32", "0+"),
        ),
    ),
    response=WireMessage(
        "DeleteTopicsResponse",
        versions="1-6",
        flexible="4+",
        fields=(
            WireField("throttle_time_ms", "int32", "1+", ignorable=True),
            WireField(
                "responses",
                "[]DeletableTopicResult",
                "0+",
                fields=(
                    WireField("name", "string", "0+", nullable="6+"),
                    WireField("topic_id", "uuid", "6+", ignorable=True),
                    WireField("error_code", "int16", "0+"),
                    WireField(
                        "error_message", "string", "5+", nullable="5+", default=None, ignorable=True
                    ),
                ),
            ),
        ),
    ),
)

DELETE_RECORDS = Api(
    key=21,
    request=WireMessage(
        "DeleteRecordsRequest",
        versions="0-2",
        flexible="2+",
        fields=(
            WireField(
                "topics",
                "[]DeleteRecordsTopic",
                "0+",
                fields=(
                    WireField("name", "string", "0+"),
                    WireField(
                        "partitions",
                        "[]DeleteRecordsPartition",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("offset", "int64", "0+"),
                        ),
                    ),
                ),
            ),
            WireField("timeout_ms", "int32", "0+"),
        ),
    ),
    response=WireMessage(
        "DeleteRecordsResponse",
        versions="0-2",
        flexible="2+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField(
                "topics",
                "[]DeleteRecordsTopicResult",
                "0+",
                fields=(
                    WireField("name", "string", "0+"),
                    WireField(
                        "partitions",
                        "[]DeleteRecordsPartitionResult",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("low_watermark", "int64", "0+"),
                            WireField("error_code", "int16", "0+"),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

OFFSET_FOR_LEADER_EPOCH = Api(
    key=23,
    request=WireMessage(
        "OffsetForLeaderEpochRequest",
        versions="2-4",
        flexible="4+",
        fields=(
            WireField("replica_id", "int32", "3+", default=-2, ignorable=True),
            WireField(
                "topics",
                "[]OffsetForLeaderTopic",
                "0+",
                fields=(
                    WireField("topic", "string", "0+"),
                    WireField(
                        "partitions",
                        "[]OffsetForLeaderPartition",
                        "0+",
                        fields=(
                            WireField("partition", "int32", "0+"),
                            WireField(
                                "current_leader_epoch", "int32", "2+", default=-1, ignorable=True
                            ),
                            WireField("leader_epoch", "int32", "0+"),
                        ),
                    ),
                ),
            ),
        ),
    ),
    response=WireMessage(
        "OffsetForLeaderEpochResponse",
        versions="2-4",
        flexible="4+",
        fields=(
            WireField("throttle_time_ms", "int32", "2+", ignorable=True),
            WireField(
                "topics",
                "[]OffsetForLeaderTopicResult",
                "0+",
                fields=(
                    WireField("topic", "string", "0+"),
                    WireField(
                        "partitions",
                        "[]EpochEndOffset",
                        "0+",
                        fields=(
                            WireField("error_code", "int16", "0+"),
                            WireField("partition", "int32", "0+"),
                            WireField("leader_epoch", "int32", "1+", default=-1, ignorable=True),
                            WireField("end_offset", "int64", "0+", default=-1),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

ADD_OFFSETS_TO_TXN = Api(
    key=25,
    request=WireMessage(
        "AddOffsetsToTxnRequest",
        versions="0-4",
        flexible="3+",
        fields=(
            WireField("transactional_id", "string", "0+"),
            WireField("producer_id", "int64", "0+"),
            WireField("producer_epoch", "int16", "0+"),
            WireField("group_id", "string", "0+"),
        ),
    ),
    response=WireMessage(
        "AddOffsetsToTxnResponse",
        versions="0-4",
        flexible="3+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField("error_code", "int16", "0+"),
        ),
    ),
)

TXN_OFFSET_COMMIT = Api(
    key=28,
    request=WireMessage(
        "TxnOffsetCommitRequest",
        versions="0-6",
        flexible="3+",
        fields=(
            WireField("transactional_id", "string", "0+"),
            WireField("group_id", "string", "0+"),
            WireField("producer_id", "int64", "0+"),
            WireField("producer_epoch", "int16", "0+"),
            WireField("generation_id_or_member_epoch", "int32", "3+", default=-1),
            WireField("member_id", "string", "3+"),
            WireField("group_instance_id", "string", "3+", nullable="3+", default=None),
            WireField(
                "topics",
                "[]TxnOffsetCommitRequestTopic",
                "0+",
                fields=(
                    WireField("name", "string", "0-5", ignorable=True),
                    WireField("topic_id", "uuid", "6+", ignorable=True),
                    WireField(
                        "partitions",
                        "[]TxnOffsetCommitRequestPartition",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("committed_offset", "int64", "0+"),
                            WireField(
                                "committed_leader_epoch", "int32", "2+", default=-1, ignorable=True
                            ),
                            WireField("committed_metadata", "string", "0+", nullable="0+"),
                        ),
                    ),
                ),
            ),
        ),
    ),
    response=WireMessage(
        "TxnOffsetCommitResponse",
        versions="0-6",
        flexible="3+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField(
                "topics",
                "[]TxnOffsetCommitResponseTopic",
                "0+",
                fields=(
                    WireField("name", "string", "0-5", ignorable=True),
                    WireField("topic_id", "uuid", "6+", ignorable=True),
                    WireField(
                        "partitions",
                        "[]TxnOffsetCommitResponsePartition",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("error_code", "int16", "0+"),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

DESCRIBE_CONFIGS = Api(
    key=32,
    request=WireMessage(
        "DescribeConfigsRequest",
        versions="1-4",
        flexible="4+",
        fields=(
            WireField(
                "resources",
                "[]DescribeConfigsResource",
                "0+",
                fields=(
                    WireField("resource_type", "int8", "0+"),
                    WireField("resource_name", "string", "0+"),
                    WireField("configuration_keys", "[]string", "0+", nullable="0+"),
                ),
            ),
            WireField("include_synonyms", "bool", "1+"),
            WireField("include_documentation", "bool", "3+"),
        ),
    ),
    response=WireMessage(
        "DescribeConfigsResponse",
        versions="1-4",
        flexible="4+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField(
                "results",
                "[]DescribeConfigsResult",
                "0+",
                fields=(
                    WireField("error_code", "int16", "0+"),
                    WireField("error_message", "string", "0+", nullable="0+"),
                    WireField("resource_type", "int8", "0+"),
                    WireField("resource_name", "string", "0+"),
                    WireField(
                        "configs",
                        "[]DescribeConfigsResourceResult",
                        "0+",
                        fields=(
                            WireField("name", "string", "0+"),
                            WireField("value", "string", "0+", nullable="0+"),
                            WireField("read_only", "bool", "0+"),
                            WireField("config_source", "int8", "1+", default=-1, ignorable=True),
                            WireField("is_sensitive", "bool", "0+"),
                            WireField(
                                "synonyms",
                                "[]DescribeConfigsSynonym",
                                "1+",
                                ignorable=True,
                                fields=(
                                    WireField("name", "string", "1+"),
                                    WireField("value", "string", "1+", nullable="0+"),
                                    WireField("source", "int8", "1+"),
                                ),
                            ),
                            WireField("config_type", "int8", "3+", ignorable=True),
                            WireField(
                                "documentation", "string", "3+", nullable="0+", ignorable=True
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

SASL_AUTHENTICATE = Api(
    key=36,
    request=WireMessage(
        "SaslAuthenticateRequest",
        versions="0-2",
        flexible="2+",
        fields=(WireField("auth_bytes", "bytes", "0+"),),
    ),
    response=WireMessage(
        "SaslAuthenticateResponse",
        versions="0-2",
        flexible="2+",
        fields=(
            WireField("error_code", "int16", "0+"),
            WireField("error_message", "string", "0+", nullable="0+"),
            WireField("auth_bytes", "bytes", "0+"),
            WireField("session_lifetime_ms", "int64", "1+", ignorable=True),
        ),
    ),
)

CREATE_PARTITIONS = Api(
    key=37,
    request=WireMessage(
        "CreatePartitionsRequest",
        versions="0-3",
        flexible="2+",
        fields=(
            WireField(
                "topics",
                "[]CreatePartitionsTopic",
                "0+",
                fields=(
                    WireField("name", "string", "0+"),
                    WireField("count", "int32", "0+"),
                    WireField(
                        "assignments",
                        "[]CreatePartitionsAssignment",
                        "0+",
                        nullable="0+",
                        fields=(WireField("broker_ids", "[]int32", "0+"),),
                    ),
                ),
            ),
            WireField("timeout_ms", "int32", "0+"),
            WireField("validate_only", "bool", "0+"),
        ),
    ),
    response=WireMessage(
        "CreatePartitionsResponse",
        versions="0-3",
        flexible="2+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField(
                "results",
                "[]CreatePartitionsTopicResult",
                "0+",
                fields=(
                    WireField("name", "string", "0+"),
                    WireField("error_code", "int16", "0+"),
                    WireField("error_message", "string", "0+", nullable="0+", default=None),
                ),
            ),
        ),
    ),
)

DELETE_GROUPS = Api(
    key=42,
    request=WireMessage(
        "DeleteGroupsRequest",
        versions="0-3",
        flexible="2+",
        fields=(WireField("groups_names", "[]string", "0+"),),
    ),
    response=WireMessage(
        "DeleteGroupsResponse",
        versions="0-3",
        flexible="2+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField(
                "results",
                "[]DeletableGroupResult",
                "0+",
                fields=(
                    WireField("group_id", "string", "0+"),
                    WireField("error_code", "int16", "0+"),
                    WireField(
                        "error_message", "string", "3+", nullable="3+", default=None, ignorable=True
                    ),
                ),
            ),
        ),
    ),
)

INCREMENTAL_ALTER_CONFIGS = Api(
    key=44,
    request=WireMessage(
        "IncrementalAlterConfigsRequest",
        versions="0-1",
        flexible="1+",
        fields=(
            WireField(
                "resources",
                "[]AlterConfigsResource",
                "0+",
                fields=(
                    WireField("resource_type", "int8", "0+"),
                    WireField("resource_name", "string", "0+"),
                    WireField(
                        "configs",
                        "[]AlterableConfig",
                        "0+",
                        fields=(
                            WireField("name", "string", "0+"),
                            WireField("config_operation", "int8", "0+"),
                            WireField("value", "string", "0+", nullable="0+"),
                        ),
                    ),
                ),
            ),
            WireField("validate_only", "bool", "0+"),
        ),
    ),
    response=WireMessage(
        "IncrementalAlterConfigsResponse",
        versions="0-1",
        flexible="1+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField(
                "responses",
                "[]AlterConfigsResourceResponse",
                "0+",
                fields=(
                    WireField("error_code", "int16", "0+"),
                    WireField("error_message", "string", "0+", nullable="0+"),
                    WireField("resource_type", "int8", "0+"),
                    WireField("resource_name", "string", "0+"),
                ),
            ),
        ),
    ),
)

OFFSET_DELETE = Api(
    key=47,
    request=WireMessage(
        "OffsetDeleteRequest",
        versions="0",
        flexible="none",
        fields=(
            WireField("group_id", "string", "0+"),
            WireField(
                "topics",
                "[]OffsetDeleteRequestTopic",
                "0+",
                fields=(
                    WireField("name", "string", "0+"),
                    WireField(
                        "partitions",
                        "[]OffsetDeleteRequestPartition",
                        "0+",
                        fields=(WireField("partition_index", "int32", "0+"),),
                    ),
                ),
            ),
        ),
    ),
    response=WireMessage(
        "OffsetDeleteResponse",
        versions="0",
        flexible="none",
        fields=(
            WireField("error_code", "int16", "0+"),
            WireField("throttle_time_ms", "int32", "0+", ignorable=True),
            WireField(
                "topics",
                "[]OffsetDeleteResponseTopic",
                "0+",
                fields=(
                    WireField("name", "string", "0+"),
                    WireField(
                        "partitions",
                        "[]OffsetDeleteResponsePartition",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("error_code", "int16", "0+"),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

DESCRIBE_CLUSTER = Api(
    key=60,
    request=WireMessage(
        "DescribeClusterRequest",
        versions="0-2",
        flexible="0+",
        fields=(
            WireField("include_cluster_authorized_operations", "bool", "0+"),
            WireField("endpoint_type", "int8", "1+", default=1),
            WireField("include_fenced_brokers", "bool", "2+"),
        ),
    ),
    response=WireMessage(
        "DescribeClusterResponse",
        versions="0-2",
        flexible="0+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField("error_code", "int16", "0+"),
            WireField("error_message", "string", "0+", nullable="0+", default=None),
            WireField("endpoint_type", "int8", "1+", default=1),
            WireField("cluster_id", "string", "0+"),
            WireField("controller_id", "int32", "0+", default=-1),
            WireField(
                "brokers",
                "[]DescribeClusterBroker",
                "0+",
                fields=(
                    WireField("broker_id", "int32", "0+"),
                    WireField("host", "string", "0+"),
                    WireField("port", "int32", "0+"),
                    WireField("rack", "string", "0+", nullable="0+", default=None),
                    WireField("is_fenced", "bool", "2+"),
                ),
            ),
            WireField("cluster_authorized_operations", "int32", "0+", default=-2147483648),
        ),
    ),
)

CONSUMER_GROUP_HEARTBEAT = Api(
    key=68,
    request=WireMessage(
        "ConsumerGroupHeartbeatRequest",
        versions="0-1",
        flexible="0+",
        fields=(
            WireField("group_id", "string", "0+"),
            WireField("member_id", "string", "0+"),
            WireField("member_epoch", "int32", "0+"),
            WireField("instance_id", "string", "0+", nullable="0+", default=None),
            WireField("rack_id", "string", "0+", nullable="0+", default=None),
            WireField("rebalance_timeout_ms", "int32", "0+", default=-1),
            WireField("subscribed_topic_names", "[]string", "0+", nullable="0+", default=None),
            WireField("subscribed_topic_regex", "string", "1+", nullable="1+", default=None),
            WireField("server_assignor", "string", "0+", nullable="0+", default=None),
            WireField(
                "topic_partitions",
                "[]TopicPartitions",
                "0+",
                nullable="0+",
                default=None,
                fields=(
                    WireField("topic_id", "uuid", "0+"),
                    WireField("partitions", "[]int32", "0+"),
                ),
            ),
        ),
    ),
    response=WireMessage(
        "ConsumerGroupHeartbeatResponse",
        versions="0-1",
        flexible="0+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField("error_code", "int16", "0+"),
            WireField("error_message", "string", "0+", nullable="0+", default=None),
            WireField("member_id", "string", "0+", nullable="0+", default=None),
            WireField("member_epoch", "int32", "0+"),
            WireField("heartbeat_interval_ms", "int32", "0+"),
            WireField(
                "assignment",
                "Assignment",
                "0+",
                nullable="0+",
                default=None,
                fields=(
                    WireField(
                        "topic_partitions",
                        "[]TopicPartitions",
                        "0+",
                        fields=(
                            WireField("topic_id", "uuid", "0+"),
                            WireField("partitions", "[]int32", "0+"),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

CONSUMER_GROUP_DESCRIBE = Api(
    key=69,
    request=WireMessage(
        "ConsumerGroupDescribeRequest",
        versions="0-1",
        flexible="0+",
        fields=(
            WireField("group_ids", "[]string", "0+"),
            WireField("include_authorized_operations", "bool", "0+"),
        ),
    ),
    response=WireMessage(
        "ConsumerGroupDescribeResponse",
        versions="0-1",
        flexible="0+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField(
                "groups",
                "[]DescribedGroup",
                "0+",
                fields=(
                    WireField("error_code", "int16", "0+"),
                    WireField("error_message", "string", "0+", nullable="0+", default=None),
                    WireField("group_id", "string", "0+"),
                    WireField("group_state", "string", "0+"),
                    WireField("group_epoch", "int32", "0+"),
                    WireField("assignment_epoch", "int32", "0+"),
                    WireField("assignor_name", "string", "0+"),
                    WireField(
                        "members",
                        "[]Member",
                        "0+",
                        fields=(
                            WireField("member_id", "string", "0+"),
                            WireField("instance_id", "string", "0+", nullable="0+", default=None),
                            WireField("rack_id", "string", "0+", nullable="0+", default=None),
                            WireField("member_epoch", "int32", "0+"),
                            WireField("client_id", "string", "0+"),
                            WireField("client_host", "string", "0+"),
                            WireField("subscribed_topic_names", "[]string", "0+"),
                            WireField(
                                "subscribed_topic_regex",
                                "string",
                                "0+",
                                nullable="0+",
                                default=None,
                            ),
                            WireField(
                                "assignment",
                                "Assignment",
                                "0+",
                                fields=(
                                    WireField(
                                        "topic_partitions",
                                        "[]TopicPartitions",
                                        "0+",
                                        fields=(
                                            WireField("topic_id", "uuid", "0+"),
                                            WireField("topic_name", "string", "0+"),
                                            WireField("partitions", "[]int32", "0+"),
                                        ),
                                    ),
                                ),
                            ),
                            WireField(
                                "target_assignment",
                                "Assignment",
                                "0+",
                                fields=(
                                    WireField(
                                        "topic_partitions",
                                        "[]TopicPartitions",
                                        "0+",
                                        fields=(
                                            WireField("topic_id", "uuid", "0+"),
                                            WireField("topic_name", "string", "0+"),
                                            WireField("partitions", "[]int32", "0+"),
                                        ),
                                    ),
                                ),
                            ),
                            WireField("member_type", "int8", "1+", default=-1, ignorable=True),
                        ),
                    ),
                    WireField("authorized_operations", "int32", "0+", default=-2147483648),
                ),
            ),
        ),
    ),
)

GET_TELEMETRY_SUBSCRIPTIONS = Api(
    key=71,
    request=WireMessage(
        "GetTelemetrySubscriptionsRequest",
        versions="0",
        flexible="0+",
        fields=(WireField("client_instance_id", "uuid", "0+"),),
    ),
    response=WireMessage(
        "GetTelemetrySubscriptionsResponse",
        versions="0",
        flexible="0+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField("error_code", "int16", "0+"),
            WireField("client_instance_id", "uuid", "0+"),
            WireField("subscription_id", "int32", "0+"),
            WireField("accepted_compression_types", "[]int8", "0+"),
            WireField("push_interval_ms", "int32", "0+"),
            WireField("telemetry_max_bytes", "int32", "0+"),
            WireField("delta_temporality", "bool", "0+"),
            WireField("requested_metrics", "[]string", "0+"),
        ),
    ),
)

PUSH_TELEMETRY = Api(
    key=72,
    request=WireMessage(
        "PushTelemetryRequest",
        versions="0",
        flexible="0+",
        fields=(
            WireField("client_instance_id", "uuid", "0+"),
            WireField("subscription_id", "int32", "0+"),
            WireField("terminating", "bool", "0+"),
            WireField("compression_type", "int8", "0+"),
            WireField("metrics", "bytes", "0+"),
        ),
    ),
    response=WireMessage(
        "PushTelemetryResponse",
        versions="0",
        flexible="0+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField("error_code", "int16", "0+"),
        ),
    ),
)

DESCRIBE_TOPIC_PARTITIONS = Api(
    key=75,
    request=WireMessage(
        "DescribeTopicPartitionsRequest",
        versions="0",
        flexible="0+",
        fields=(
            WireField(
                "topics", "[]TopicRequest", "0+", fields=(WireField("name", "string", "0+"),)
            ),
            WireField("response_partition_limit", "int32", "0+", default=2000),
            WireField(
                "cursor",
                "Cursor",
                "0+",
                nullable="0+",
                default=None,
                fields=(
                    WireField("topic_name", "string", "0+"),
                    WireField("partition_index", "int32", "0+"),
                ),
            ),
        ),
    ),
    response=WireMessage(
        "DescribeTopicPartitionsResponse",
        versions="0",
        flexible="0+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+", ignorable=True),
            WireField(
                "topics",
                "[]DescribeTopicPartitionsResponseTopic",
                "0+",
                fields=(
                    WireField("error_code", "int16", "0+"),
                    WireField("name", "string", "0+", nullable="0+"),
                    WireField("topic_id", "uuid", "0+", ignorable=True),
                    WireField("is_internal", "bool", "0+", ignorable=True),
                    WireField(
                        "partitions",
                        "[]DescribeTopicPartitionsResponsePartition",
                        "0+",
                        fields=(
                            WireField("error_code", "int16", "0+"),
                            WireField("partition_index", "int32", "0+"),
                            WireField("leader_id", "int32", "0+"),
                            WireField("leader_epoch", "int32", "0+", default=-1, ignorable=True),
                            WireField("replica_nodes", "[]int32", "0+"),
                            WireField("isr_nodes", "[]int32", "0+"),
                            WireField(
                                "eligible_leader_replicas",
                                "[]int32",
                                "0+",
                                nullable="0+",
                                default=None,
                            ),
                            WireField(
                                "last_known_elr", "[]int32", "0+", nullable="0+", default=None
                            ),
                            WireField("offline_replicas", "[]int32", "0+", ignorable=True),
                        ),
                    ),
                    WireField("topic_authorized_operations", "int32", "0+", default=-2147483648),
                ),
            ),
            WireField(
                "next_cursor",
                "Cursor",
                "0+",
                nullable="0+",
                default=None,
                fields=(
                    WireField("topic_name", "string", "0+"),
                    WireField("partition_index", "int32", "0+"),
                ),
            ),
        ),
    ),
)

SHARE_GROUP_HEARTBEAT = Api(
    key=76,
    request=WireMessage(
        "ShareGroupHeartbeatRequest",
        versions="1",
        flexible="0+",
        fields=(
            WireField("group_id", "string", "0+"),
            WireField("member_id", "string", "0+"),
            WireField("member_epoch", "int32", "0+"),
            WireField("rack_id", "string", "0+", nullable="0+", default=None),
            WireField("subscribed_topic_names", "[]string", "0+", nullable="0+", default=None),
        ),
    ),
    response=WireMessage(
        "ShareGroupHeartbeatResponse",
        versions="1",
        flexible="0+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField("error_code", "int16", "0+"),
            WireField("error_message", "string", "0+", nullable="0+", default=None),
            WireField("member_id", "string", "0+", nullable="0+", default=None),
            WireField("member_epoch", "int32", "0+"),
            WireField("heartbeat_interval_ms", "int32", "0+"),
            WireField(
                "assignment",
                "Assignment",
                "0+",
                nullable="0+",
                default=None,
                fields=(
                    WireField(
                        "topic_partitions",
                        "[]TopicPartitions",
                        "0+",
                        fields=(
                            WireField("topic_id", "uuid", "0+"),
                            WireField("partitions", "[]int32", "0+"),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

SHARE_GROUP_DESCRIBE = Api(
    key=77,
    request=WireMessage(
        "ShareGroupDescribeRequest",
        versions="1",
        flexible="0+",
        fields=(
            WireField("group_ids", "[]string", "0+"),
            WireField("include_authorized_operations", "bool", "0+"),
        ),
    ),
    response=WireMessage(
        "ShareGroupDescribeResponse",
        versions="1",
        flexible="0+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField(
                "groups",
                "[]DescribedGroup",
                "0+",
                fields=(
                    WireField("error_code", "int16", "0+"),
                    WireField("error_message", "string", "0+", nullable="0+", default=None),
                    WireField("group_id", "string", "0+"),
                    WireField("group_state", "string", "0+"),
                    WireField("group_epoch", "int32", "0+"),
                    WireField("assignment_epoch", "int32", "0+"),
                    WireField("assignor_name", "string", "0+"),
                    WireField(
                        "members",
                        "[]Member",
                        "0+",
                        fields=(
                            WireField("member_id", "string", "0+"),
                            WireField("rack_id", "string", "0+", nullable="0+", default=None),
                            WireField("member_epoch", "int32", "0+"),
                            WireField("client_id", "string", "0+"),
                            WireField("client_host", "string", "0+"),
                            WireField("subscribed_topic_names", "[]string", "0+"),
                            WireField(
                                "assignment",
                                "Assignment",
                                "0+",
                                fields=(
                                    WireField(
                                        "topic_partitions",
                                        "[]TopicPartitions",
                                        "0+",
                                        fields=(
                                            WireField("topic_id", "uuid", "0+"),
                                            WireField("topic_name", "string", "0+"),
                                            WireField("partitions", "[]int32", "0+"),
                                        ),
                                    ),
                                ),
                            ),
                        ),
                    ),
                    WireField("authorized_operations", "int32", "0+", default=-2147483648),
                ),
            ),
        ),
    ),
)

SHARE_FETCH = Api(
    key=78,
    request=WireMessage(
        "ShareFetchRequest",
        versions="1-2",
        flexible="0+",
        fields=(
            WireField("group_id", "string", "0+", nullable="0+", default=None),
            WireField("member_id", "string", "0+", nullable="0+"),
            WireField("share_session_epoch", "int32", "0+"),
            WireField("max_wait_ms", "int32", "0+"),
            WireField("min_bytes", "int32", "0+"),
            WireField("max_bytes", "int32", "0+", default=2147483647),
            WireField("max_records", "int32", "1+"),
            WireField("batch_size", "int32", "1+"),
            WireField("share_acquire_mode", "int8", "2+", ignorable=True),
            WireField("is_renew_ack", "bool", "2+"),
            WireField(
                "topics",
                "[]FetchTopic",
                "0+",
                fields=(
                    WireField("topic_id", "uuid", "0+"),
                    WireField(
                        "partitions",
                        "[]FetchPartition",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("partition_max_bytes", "int32", "0"),
                            WireField(
                                "acknowledgement_batches",
                                "[]AcknowledgementBatch",
                                "0+",
                                fields=(
                                    WireField("first_offset", "int64", "0+"),
                                    WireField("last_offset", "int64", "0+"),
                                    WireField("acknowledge_types", "[]int8", "0+"),
                                ),
                            ),
                        ),
                    ),
                ),
            ),
            WireField(
                "forgotten_topics_data",
                "[]ForgottenTopic",
                "0+",
                fields=(
                    WireField("topic_id", "uuid", "0+"),
                    WireField("partitions", "[]int32", "0+"),
                ),
            ),
        ),
    ),
    response=WireMessage(
        "ShareFetchResponse",
        versions="1-2",
        flexible="0+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField("error_code", "int16", "0+"),
            WireField("error_message", "string", "0+", nullable="0+", default=None),
            WireField("acquisition_lock_timeout_ms", "int32", "1+"),
            WireField(
                "responses",
                "[]ShareFetchableTopicResponse",
                "0+",
                fields=(
                    WireField("topic_id", "uuid", "0+"),
                    WireField(
                        "partitions",
                        "[]PartitionData",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("error_code", "int16", "0+"),
                            WireField("error_message", "string", "0+", nullable="0+", default=None),
                            WireField("acknowledge_error_code", "int16", "0+"),
                            WireField(
                                "acknowledge_error_message",
                                "string",
                                "0+",
                                nullable="0+",
                                default=None,
                            ),
                            WireField(
                                "current_leader",
                                "LeaderIdAndEpoch",
                                "0+",
                                fields=(
                                    WireField("leader_id", "int32", "0+"),
                                    WireField("leader_epoch", "int32", "0+"),
                                ),
                            ),
                            WireField("records", "records", "0+", nullable="0"),
                            WireField(
                                "acquired_records",
                                "[]AcquiredRecords",
                                "0+",
                                fields=(
                                    WireField("first_offset", "int64", "0+"),
                                    WireField("last_offset", "int64", "0+"),
                                    WireField("delivery_count", "int16", "0+"),
                                ),
                            ),
                        ),
                    ),
                ),
            ),
            WireField(
                "node_endpoints",
                "[]NodeEndpoint",
                "0+",
                fields=(
                    WireField("node_id", "int32", "0+"),
                    WireField("host", "string", "0+"),
                    WireField("port", "int32", "0+"),
                    WireField("rack", "string", "0+", nullable="0+", default=None),
                ),
            ),
        ),
    ),
)

SHARE_ACKNOWLEDGE = Api(
    key=79,
    request=WireMessage(
        "ShareAcknowledgeRequest",
        versions="1-2",
        flexible="0+",
        fields=(
            WireField("group_id", "string", "0+", nullable="0+", default=None),
            WireField("member_id", "string", "0+", nullable="0+"),
            WireField("share_session_epoch", "int32", "0+"),
            WireField("is_renew_ack", "bool", "2+"),
            WireField(
                "topics",
                "[]AcknowledgeTopic",
                "0+",
                fields=(
                    WireField("topic_id", "uuid", "0+"),
                    WireField(
                        "partitions",
                        "[]AcknowledgePartition",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField(
                                "acknowledgement_batches",
                                "[]AcknowledgementBatch",
                                "0+",
                                fields=(
                                    WireField("first_offset", "int64", "0+"),
                                    WireField("last_offset", "int64", "0+"),
                                    WireField("acknowledge_types", "[]int8", "0+"),
                                ),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
    response=WireMessage(
        "ShareAcknowledgeResponse",
        versions="1-2",
        flexible="0+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField("error_code", "int16", "0+"),
            WireField("error_message", "string", "0+", nullable="0+", default=None),
            WireField("acquisition_lock_timeout_ms", "int32", "2+", ignorable=True),
            WireField(
                "responses",
                "[]ShareAcknowledgeTopicResponse",
                "0+",
                fields=(
                    WireField("topic_id", "uuid", "0+"),
                    WireField(
                        "partitions",
                        "[]PartitionData",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("error_code", "int16", "0+"),
                            WireField("error_message", "string", "0+", nullable="0+", default=None),
                            WireField(
                                "current_leader",
                                "LeaderIdAndEpoch",
                                "0+",
                                fields=(
                                    WireField("leader_id", "int32", "0+"),
                                    WireField("leader_epoch", "int32", "0+"),
                                ),
                            ),
                        ),
                    ),
                ),
            ),
            WireField(
                "node_endpoints",
                "[]NodeEndpoint",
                "0+",
                fields=(
                    WireField("node_id", "int32", "0+"),
                    WireField("host", "string", "0+"),
                    WireField("port", "int32", "0+"),
                    WireField("rack", "string", "0+", nullable="0+", default=None),
                ),
            ),
        ),
    ),
)

DESCRIBE_SHARE_GROUP_OFFSETS = Api(
    key=90,
    request=WireMessage(
        "DescribeShareGroupOffsetsRequest",
        versions="0-1",
        flexible="0+",
        fields=(
            WireField(
                "groups",
                "[]DescribeShareGroupOffsetsRequestGroup",
                "0+",
                fields=(
                    WireField("group_id", "string", "0+"),
                    WireField(
                        "topics",
                        "[]DescribeShareGroupOffsetsRequestTopic",
                        "0+",
                        nullable="0+",
                        fields=(
                            WireField("topic_name", "string", "0+"),
                            WireField("partitions", "[]int32", "0+"),
                        ),
                    ),
                ),
            ),
        ),
    ),
    response=WireMessage(
        "DescribeShareGroupOffsetsResponse",
        versions="0-1",
        flexible="0+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField(
                "groups",
                "[]DescribeShareGroupOffsetsResponseGroup",
                "0+",
                fields=(
                    WireField("group_id", "string", "0+"),
                    WireField(
                        "topics",
                        "[]DescribeShareGroupOffsetsResponseTopic",
                        "0+",
                        fields=(
                            WireField("topic_name", "string", "0+"),
                            WireField("topic_id", "uuid", "0+"),
                            WireField(
                                "partitions",
                                "[]DescribeShareGroupOffsetsResponsePartition",
                                "0+",
                                fields=(
                                    WireField("partition_index", "int32", "0+"),
                                    WireField("start_offset", "int64", "0+"),
                                    WireField("leader_epoch", "int32", "0+"),
                                    WireField("lag", "int64", "1+", default=-1, ignorable=True),
                                    WireField("error_code", "int16", "0+"),
                                    WireField(
                                        "error_message", "string", "0+", nullable="0+", default=None
                                    ),
                                ),
                            ),
                        ),
                    ),
                    WireField("error_code", "int16", "0+"),
                    WireField("error_message", "string", "0+", nullable="0+", default=None),
                ),
            ),
        ),
    ),
)

ALTER_SHARE_GROUP_OFFSETS = Api(
    key=91,
    request=WireMessage(
        "AlterShareGroupOffsetsRequest",
        versions="0",
        flexible="0+",
        fields=(
            WireField("group_id", "string", "0+"),
            WireField(
                "topics",
                "[]AlterShareGroupOffsetsRequestTopic",
                "0+",
                fields=(
                    WireField("topic_name", "string", "0+"),
                    WireField(
                        "partitions",
                        "[]AlterShareGroupOffsetsRequestPartition",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("start_offset", "int64", "0+"),
                        ),
                    ),
                ),
            ),
        ),
    ),
    response=WireMessage(
        "AlterShareGroupOffsetsResponse",
        versions="0",
        flexible="0+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField("error_code", "int16", "0+"),
            WireField("error_message", "string", "0+", nullable="0+", default=None),
            WireField(
                "responses",
                "[]AlterShareGroupOffsetsResponseTopic",
                "0+",
                fields=(
                    WireField("topic_name", "string", "0+"),
                    WireField("topic_id", "uuid", "0+"),
                    WireField(
                        "partitions",
                        "[]AlterShareGroupOffsetsResponsePartition",
                        "0+",
                        fields=(
                            WireField("partition_index", "int32", "0+"),
                            WireField("error_code", "int16", "0+"),
                            WireField("error_message", "string", "0+", nullable="0+", default=None),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

DELETE_SHARE_GROUP_OFFSETS = Api(
    key=92,
    request=WireMessage(
        "DeleteShareGroupOffsetsRequest",
        versions="0",
        flexible="0+",
        fields=(
            WireField("group_id", "string", "0+"),
            WireField(
                "topics",
                "[]DeleteShareGroupOffsetsRequestTopic",
                "0+",
                fields=(WireField("topic_name", "string", "0+"),),
            ),
        ),
    ),
    response=WireMessage(
        "DeleteShareGroupOffsetsResponse",
        versions="0",
        flexible="0+",
        fields=(
            WireField("throttle_time_ms", "int32", "0+"),
            WireField("error_code", "int16", "0+"),
            WireField("error_message", "string", "0+", nullable="0+", default=None),
            WireField(
                "responses",
                "[]DeleteShareGroupOffsetsResponseTopic",
                "0+",
                fields=(
                    WireField("topic_name", "string", "0+"),
                    WireField("topic_id", "uuid", "0+"),
                    WireField("error_code", "int16", "0+"),
                    WireField("error_message", "string", "0+", nullable="0+", default=None),
                ),
            ),
        ),
    ),
)

REQUEST_HEADER = WireMessage(
    "RequestHeader",
    versions="1-2",
    flexible="2+",
    fields=(
        WireField("request_api_key", "int16", "0+"),
        WireField("request_api_version", "int16", "0+"),
        WireField("correlation_id", "int32", "0+"),
        WireField("client_id", "string", "1+", nullable="1+", flexible="none"),
    ),
)

RESPONSE_HEADER = WireMessage(
    "ResponseHeader",
    versions="0-1",
    flexible="1+",
    fields=(WireField("correlation_id", "int32", "0+"),),
)

CONSUMER_PROTOCOL_SUBSCRIPTION = WireMessage(
    "ConsumerProtocolSubscription",
    versions="0-3",
    flexible="none",
    fields=(
        WireField("topics", "[]string", "0+"),
        WireField("user_data", "bytes", "0+", nullable="0+", default=None),
        WireField(
            "owned_partitions",
            "[]TopicPartition",
            "1+",
            ignorable=True,
            fields=(
                WireField("topic", "string", "1+"),
                WireField("partitions", "[]int32", "1+"),
            ),
        ),
        WireField("generation_id", "int32", "2+", default=-1, ignorable=True),
        WireField("rack_id", "string", "3+", nullable="3+", default=None, ignorable=True),
    ),
)

CONSUMER_PROTOCOL_ASSIGNMENT = WireMessage(
    "ConsumerProtocolAssignment",
    versions="0-3",
    flexible="none",
    fields=(
        WireField(
            "assigned_partitions",
            "[]TopicPartition",
            "0+",
            fields=(
                WireField("topic", "string", "0+"),
                WireField("partitions", "[]int32", "0+"),
            ),
        ),
        WireField("user_data", "bytes", "0+", nullable="0+", default=None),
    ),
)
