"""``reactive-kafka demo``: consumers of ``examples/demo``, traffic for them, a table to watch, a checked end."""
