"""Messages and batches as handlers get them, their acks, and who waits for the answers."""
