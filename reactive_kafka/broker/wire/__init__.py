"""Kafka's messages: their definitions, the codec for them, and the requests made of them."""
