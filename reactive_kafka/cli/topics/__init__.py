"""``reactive-kafka topics``: shows topics, and makes them as the configuration declares them."""
