"""Answers what happened to one record, from what this process knows. It asks no broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reactive_kafka.channel.lifecycle import ChannelLifecycle
from reactive_kafka.channel.record_lookup import look_up_record
from reactive_kafka.control.arguments import RecordArguments, record_arguments
from reactive_kafka.http.action_requests import ActionAnswer, ActionError
from reactive_kafka.http.fact_json import time_text
from reactive_kafka.observe.record_pasts import RecordPasts
from reactive_kafka.observe.record_whereabouts import RecordFacts, whereabouts
from reactive_kafka.observe.safe_text import one_line


class RecordLooks:
    """Looks for records in the channels of an application.

    Args:
        channels: Returns name -> channel of the run; empty: nothing runs.
        pasts: What is remembered of records.
        now: The time of the monotonic clock.
    """

    def __init__(
        self,
        channels: Callable[[], Mapping[str, ChannelLifecycle]],
        pasts: RecordPasts,
        now: Callable[[], float],
    ) -> None:
        self._channels = channels
        self._pasts = pasts
        self._now = now

    def look(self, query: Mapping[str, str]) -> ActionAnswer:
        """Return where a record is, for each channel that reads its topic."""
        try:
            return self._look(record_arguments(query))
        except ActionError as refusal:
            return refusal.answer()

    def _look(self, asked: RecordArguments) -> ActionAnswer:
        channels = self._channels()
        if not channels:
            raise ActionError(503, "the application does not run: it knows of no record")
        now = self._now()
        found = [
            self._answer(facts)
            for channel in channels.values()
            if asked.channel in (None, channel.name)
            and (facts := look_up_record(channel, asked.partition, asked.offset, now)) is not None
        ]
        if not found:
            who = "no channel of this application reads"
            if asked.channel is not None:
                who = (
                    f"channel {one_line(repr(asked.channel), 100)} does not exist, or does not read"
                )
            topic = one_line(repr(asked.partition.topic), 100)
            raise ActionError(404, f"{who} the topic {topic}")
        return ActionAnswer(
            200,
            {
                "topic": asked.partition.topic,
                "partition": asked.partition.partition,
                "offset": asked.offset,
                "channels": found,
            },
        )

    def _answer(self, facts: RecordFacts) -> dict[str, Any]:
        past = self._pasts.of(facts.channel, facts.partition, facts.offset)
        where = whereabouts(facts, past, has_forgotten=self._pasts.has_forgotten)
        return {
            "channel": facts.channel,
            "place": where.place,
            "ending": where.ending,
            "text": [one_line(sentence) for sentence in where.text],
            "past": [{"at": time_text(one.at), "text": one_line(one.text)} for one in past],
            "attempt": facts.attempt,
            "age_seconds": None if facts.age_s is None else round(facts.age_s, 3),
            "dead_letter_topic": where.letters,
            "can_skip": where.can_skip,
        }
