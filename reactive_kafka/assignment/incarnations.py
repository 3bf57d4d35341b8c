"""Which incarnation of a topic a position belongs to. No I/O, no clock.

A topic that is deleted and created again gets another id. Ids have no order, and a broker that lags
behind still gives the old one. But each broker learns of changes in their order. So an id that one
broker has replaced by another is over, even if a broker gives it later. Otherwise only agreement
says which of two ids is the newer one:

| what brokers say of a topic | which id is believed |
|---|---|
| one id, by all who were asked and answered; none was believed | that one |
| several; none was believed | none, and reading does not start |
| a broker that gave the believed id gives another | the other one, if it is the only one left |
| some give another id, and no broker has replaced the believed one | the believed one still |
| no living broker gives the believed id any more, and all give one other | the other one |
| an id that a broker has replaced before | what was believed: that broker lags behind |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from reactive_kafka.records import TopicIds, TopicPartition

MOST_REPLACED = 16
"""How many replaced ids of one topic are remembered. A broker that lags behind gives one of the
last ones."""


@dataclass(slots=True)
class _LastRead:
    """The incarnation of which a partition was read last."""

    topic_id: str
    # The channel has failed since then, because the topic has another id now.
    has_failed: bool = False


class _TopicAnswers:
    """What brokers have said of one topic."""

    def __init__(self) -> None:
        self.believed: str | None = None
        # Broker -> the id that it gave last.
        self._by_broker: dict[int, str] = {}
        # Ids after which the same broker has given another.
        self._replaced: list[str] = []

    def said(self, broker: int, id: str) -> None:
        """A broker has given this id."""
        if id in self._replaced:
            # It lags behind.
            return
        before = self._by_broker.get(broker)
        self._by_broker[broker] = id
        if before is not None and before not in (id, *self._replaced):
            self._replaced = [*self._replaced, before][-MOST_REPLACED:]

    def keep(self, brokers: Collection[int]) -> None:
        """Keep what these brokers have said; the others are gone, or cut off from the cluster."""
        self._by_broker = {
            broker: id for broker, id in self._by_broker.items() if broker in brokers
        }

    @property
    def possible(self) -> set[str]:
        """The ids that may be the topic's."""
        return set(self._by_broker.values()).difference(self._replaced)

    def decide(self, *, by_all: bool) -> None:
        """Decide which id is believed, by the table above.

        Args:
            by_all: All living brokers were asked.
        """
        possible = self.possible
        if self.believed in possible:
            return
        is_over = self.believed in self._replaced
        if len(possible) == 1 and (by_all or is_over):
            [self.believed] = possible
        elif is_over:
            self.believed = None


class Incarnations:
    """The ids of the topics of one channel, as brokers have given them; through its restarts."""

    def __init__(self) -> None:
        self._topics: dict[str, _TopicAnswers] = {}
        self._read: dict[TopicPartition, _LastRead] = {}
        self._steps = 0
        # Broker -> the step at which it answered last.
        self._heard: dict[int, int] = {}

    def asks(self) -> int:
        """Number a question that is about to be asked.

        The number says which of two answers of a broker is the newer one.
        """
        self._steps += 1
        return self._steps

    def some_answered(self, question: int, answers: Iterable[TopicIds]) -> None:
        """Some brokers have answered. That can end the belief in an id, and not begin one."""
        self._note(question, answers, by_all=False)

    def all_answered(self, question: int, answers: Sequence[TopicIds]) -> None:
        """All brokers were asked, and these have answered."""
        living = _living(answers)
        if living:
            for topic in self._topics.values():
                topic.keep(living)
        self._note(question, [answer for answer in answers if answer.broker in living], by_all=True)

    def _note(self, question: int, answers: Iterable[TopicIds], *, by_all: bool) -> None:
        names = set[str]()
        for answer in answers:
            names.update(answer.ids)
            # Questions overlap: this answer may be older than one that the broker gave to another
            # question. Then the newer one is what this broker says.
            if self._heard.get(answer.broker, 0) > question:
                continue
            self._steps += 1
            self._heard[answer.broker] = self._steps
            for name, id in answer.ids.items():
                self._topics.setdefault(name, _TopicAnswers()).said(answer.broker, id)
        # A topic may be in an older answer, and not in the newer one of the same broker.
        for name in names & self._topics.keys():
            self._topics[name].decide(by_all=by_all)

    def are_in_doubt(self, names: Collection[str]) -> bool:
        """Whether a broker gives another id of one of these topics: then ask all brokers."""
        return any(
            topic.possible - {topic.believed} for topic in self._with_answers(names).values()
        )

    def why_undecided(self, names: Collection[str]) -> str | None:
        """Why the ids of these topics are not known, although brokers have given some.

        None: they are known, or no broker has given any.
        """
        for name, topic in sorted(self._with_answers(names).items()):
            if topic.believed is None and topic.possible:
                ids = " and ".join(sorted(topic.possible))
                if len(topic.possible) == 1:
                    return (
                        f"the id of topic {name!r} is not known yet: "
                        f"only some of the brokers have given it, as {ids}"
                    )
                return f"topic {name!r} was just created again: the brokers give {ids} as its id"
        return None

    def _with_answers(self, names: Collection[str]) -> dict[str, _TopicAnswers]:
        return {name: self._topics[name] for name in names if name in self._topics}

    def id_of(self, name: str) -> str | None:
        """The id of a topic; None: it is not known."""
        topic = self._topics.get(name)
        return None if topic is None else topic.believed

    def reads(self, partition: TopicPartition) -> str | None:
        """A partition is read from here on; returns the id of its topic, None if not known."""
        now = self.id_of(partition.topic)
        if now is not None:
            self._read[partition] = _LastRead(now)
        return now

    def last_read(self, partition: TopicPartition) -> str | None:
        """The id of the topic when this channel read a partition last; None: it is not known."""
        last = self._read.get(partition)
        return None if last is None else last.topic_id

    def failed(self, partition: TopicPartition) -> None:
        """The channel fails for a recreated topic: an operator has to choose the position."""
        last = self._read.get(partition)
        if last is not None:
            last.has_failed = True

    def has_failed(self, partition: TopicPartition) -> bool:
        """Whether the channel has failed for this partition, and has not read it since."""
        last = self._read.get(partition)
        return last is not None and last.has_failed

    def why_void(self, topic: str, belongs_to: str | None) -> str | None:
        """Why a position says nothing of the topic as it is now; None: it applies.

        Args:
            belongs_to: The id of the topic of the position, or how it begins: no more is stored.
        """
        now = self.id_of(topic)
        if now is None or belongs_to is None or now.startswith(belongs_to):
            return None
        return f"topic {topic!r} was deleted and recreated: its id was {belongs_to}, and is {now}"


def _living(answers: Sequence[TopicIds]) -> set[int]:
    """The brokers that count: those that all brokers which answered take for alive.

    So a broker that is cut off from the cluster, and learns of no change, does not count. If each
    of them takes another one for dead, all of them count.
    """
    named = set[int]().union(*(answer.alive for answer in answers))
    living = {broker for broker in named if all(broker in answer.alive for answer in answers)}
    return living if any(answer.broker in living for answer in answers) else named
