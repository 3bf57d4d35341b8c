"""What may be committed, what is overdue, and the one task that commits."""
