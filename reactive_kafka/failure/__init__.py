"""What a nack becomes."""

from reactive_kafka.failure.decision import Decision, FailedRecord, FailureStrategy, Skip, Stop, Write

__all__ = ["Decision", "FailedRecord", "FailureStrategy", "Skip", "Stop", "Write"]
