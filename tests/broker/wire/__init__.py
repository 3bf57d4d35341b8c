"""Kafka's messages: against their definitions, against aiokafka, against Java, and on a real Kafka."""
