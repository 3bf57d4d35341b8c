"""A Kafka in memory, for tests: topics with gaps in their logs, groups that rebalance, commits, and
faults at will.
"""
