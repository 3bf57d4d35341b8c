"""Reads the last dead letters of a topic for an operator."""

from __future__ import annotations

import asyncio

from reactive_kafka.broker.topic_lookup import UnknownTopicError
from reactive_kafka.control.arguments import LettersArguments
from reactive_kafka.control.letter_access import LetterAccess
from reactive_kafka.dead_letters.last_letters import last_letters
from reactive_kafka.errors import ReactiveKafkaError
from reactive_kafka.http.action_requests import ActionAnswer, ActionError
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.observe.wording import count_of

LOOK_S = 10.0
"""How long a look may take."""


class LetterLooks:
    """Reads dead letters, those of each topic for one operator at a time."""

    def __init__(self, letters: LetterAccess) -> None:
        self._letters = letters
        self._read_now: set[str] = set()

    async def look(self, topic: str, asked: LettersArguments) -> ActionAnswer:
        """Return the last letters, the newest first.

        Raises:
            ActionError: No channel writes dead letters to the topic, somebody else reads it now,
                or the broker does not answer.
        """
        cluster, _ = self._letters.of(topic)
        if topic in self._read_now:
            raise ActionError(409, f"{topic} is being read for another request: try again")
        self._read_now.add(topic)
        try:
            async with asyncio.timeout(LOOK_S):
                found = await last_letters(cluster, topic, asked.last, asked.origin)
        except TimeoutError as error:
            raise ActionError(503, f"{topic} could not be read within {LOOK_S:g} s") from error
        except UnknownTopicError:
            # It is made when the first letter is written.
            return ActionAnswer(
                200,
                {
                    "topic": topic,
                    "offsets": 0,
                    "letters": [],
                    "result": f"there is no topic {topic} yet: no record became a dead letter",
                },
            )
        except ReactiveKafkaError as error:
            raise ActionError(503, one_line(str(error))) from error
        finally:
            self._read_now.discard(topic)
        return ActionAnswer(
            200,
            {
                "topic": topic,
                "offsets": found.offsets,
                "letters": found.letters,
                "result": f"{count_of(len(found.letters))} of {topic}, the newest first",
            },
        )
