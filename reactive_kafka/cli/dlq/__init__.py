"""``reactive-kafka dlq``: shows dead letters, and sends them back."""
