"""The consumer protocol of Kafka 4.0 and newer (KIP-848), in which the broker assigns."""
