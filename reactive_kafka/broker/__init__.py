"""The seam to Kafka: bytes only across it, one module per client."""
