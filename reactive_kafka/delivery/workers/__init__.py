"""The workers of a channel: who runs handlers, when, and in which task and context."""
