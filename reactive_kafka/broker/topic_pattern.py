"""Which topics a pattern means: by their whole name, and never the broker's own."""

from __future__ import annotations

import re

INTERNAL = "__"
"""What the names of topics begin with that brokers keep for themselves."""


class TopicPattern:
    """A regular expression for names of topics.

    Args:
        pattern: The whole name has to fit it.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)

    def match(self, topic: str) -> bool:
        """Whether the topic is meant. The name is that of a compiled pattern's method: aiokafka calls it."""
        return not topic.startswith(INTERNAL) and self._pattern.fullmatch(topic) is not None
