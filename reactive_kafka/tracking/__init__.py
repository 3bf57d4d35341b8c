"""What is known of the records of one partition, from delivery to settlement. Pure."""
