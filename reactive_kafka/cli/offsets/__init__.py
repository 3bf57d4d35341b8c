"""``reactive-kafka offsets``: the positions of a group."""
