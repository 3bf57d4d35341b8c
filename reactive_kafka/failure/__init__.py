"""What a nack becomes."""
