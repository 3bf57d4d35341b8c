"""The partitions of one client: their states, their lanes, and what is known of each."""
