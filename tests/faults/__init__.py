"""Proof on real Kafka: processes are killed and restarted under load, and what they did is judged
from outside.
"""
