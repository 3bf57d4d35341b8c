"""What ack and nack do to a delivered record."""
