"""Pushes the metrics of Kafka clients to a broker that subscribes to them (KIP-714)."""
