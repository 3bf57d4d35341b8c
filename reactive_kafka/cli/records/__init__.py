"""``reactive-kafka produce`` and ``tail``: write records to a topic, and read them."""
