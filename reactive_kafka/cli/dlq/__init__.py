"""``reactive-kafka dlq``: dead letters, and their way back."""
