"""The seam to Kafka: bytes only across it, one room per client."""
