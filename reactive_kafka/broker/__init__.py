"""The seam to Kafka. Only bytes cross it, and each client has its own room."""
