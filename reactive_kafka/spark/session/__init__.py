"""Opens Spark sessions, watches and replaces them, and runs jobs in them."""
