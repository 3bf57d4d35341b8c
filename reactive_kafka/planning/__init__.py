"""Settings and declarations become a plan of each channel, or problems."""
