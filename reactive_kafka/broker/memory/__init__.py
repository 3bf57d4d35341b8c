"""A Kafka in memory, for tests: logs with gaps, groups that rebalance, commits, and faults."""
