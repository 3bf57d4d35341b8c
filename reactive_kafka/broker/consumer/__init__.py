"""Our own consumer, on the connections of a Kafka client: membership in a group."""
