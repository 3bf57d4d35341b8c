"""What happens and what is known, as values, and what is made of them: health, metrics, log lines."""
