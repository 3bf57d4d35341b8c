"""Which incarnation of its topic a position belongs to: a topic that is deleted and created again
gets another id.

Ids have no order, and a broker that lags behind still gives the old one. But each broker learns of
changes in their order. So an id that one broker has replaced by another is over, whoever gives it
later. Otherwise only agreement says which of two ids is the newer one:

| what brokers say of a topic | which id is believed |
|---|---|
| one id, by all who were asked and answered; none was believed | that one |
| several; none was believed | none, and reading does not start |
| a broker that gave the believed id gives another | the other one, if it is the only one left |
| some give another id, and no broker has replaced the believed one | the believed one still |
| no living broker gives the believed id any more, and all give one other | the other one |
| an id that a broker has replaced before | what was believed: that broker lags behind |

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from reactive_kafka.records import TopicIds, TopicPartition

MOST_REPLACED = 16
"""How many replaced ids of one topic are remembered. A broker that lags behind gives one of the
last.
"""


@dataclass(slots=True)
class _LastRead:
    """Of which incarnation a partition was read last."""

    of: str
    # The channel has failed since, because that is not the topic any more.
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
            return
        before = self._by_broker.get(broker)
        self._by_broker[broker] = id
        if before is not None and before not in (id, *self._replaced):
            self._replaced = [*self._replaced, before][-MOST_REPLACED:]

    def keep(self, brokers: Collection[int]) -> None:
        """Forget what others have said: they are gone, or cut off from the cluster."""
        self._by_broker = {
            broker: id for broker, id in self._by_broker.items() if broker in brokers
        }

    @property
    def possible(self) -> set[str]:
        """The ids that may be the topic's."""
        return set(self._by_broker.values()).difference(self._replaced)

    def decide(self, *, by_all: bool) -> None:
        """Believe what the table above says."""
        possible = self.possible
        if self.believed in possible:
            return
        is_over = self.believed in self._replaced
        if len(possible) == 1 and (by_all or is_over):
            [self.believed] = possible
        elif is_over:
            self.believed = None


class Incarnations:
    """The ids of topics, as far as brokers have given them to the clients of one channel; through
    its restarts.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _TopicAnswers] = {}
        self._read: dict[TopicPartition, _LastRead] = {}
        self._steps = 0
        # Broker -> the step of its last answer.
        self._heard: dict[int, int] = {}

    def asks(self) -> int:
        """The number of a question that is about to be asked: it says which of two answers of a
        broker is newer.
        """
        self._steps += 1
        return self._steps

    def told(self, question: int, answers: Iterable[TopicIds]) -> None:
        """Some brokers have answered. That alone can end a belief, and begins none."""
        self._note(question, answers, by_all=False)

    def told_by_all(self, question: int, answers: Sequence[TopicIds]) -> None:
        """All brokers were asked, and these have answered."""
        living = _living(answers)
        if living:
            for topic in self._topics.values():
                topic.keep(living)
        self._note(question, [answer for answer in answers if answer.broker in living], by_all=True)

    def _note(self, question: int, answers: Iterable[TopicIds], *, by_all: bool) -> None:
        names = set[str]()
        for answer in answers:
            # Questions overlap. This answer may be older than one that the broker gave to somebody
            # else.
            if self._heard.get(answer.broker, 0) > question:
                continue
            self._steps += 1
            self._heard[answer.broker] = self._steps
            names.update(answer.ids)
            for name, id in answer.ids.items():
                self._topics.setdefault(name, _TopicAnswers()).said(answer.broker, id)
        for name in names:
            self._topics[name].decide(by_all=by_all)

    def are_in_doubt(self, names: Collection[str]) -> bool:
        """True if a broker has given another id of one of these topics than the believed one: ask
        all brokers.
        """
        return any(topic.possible - {topic.believed} for topic in self._known(names).values())

    def why_undecided(self, names: Collection[str]) -> str | None:
        """Why the ids of these topics are not known, although brokers have given some; None: they
        are known.
        """
        for name, topic in sorted(self._known(names).items()):
            if topic.believed is None and topic.possible:
                ids = " and ".join(sorted(topic.possible))
                return f"topic {name!r} was just created again: the brokers give {ids} as its id"
        return None

    def _known(self, names: Collection[str]) -> dict[str, _TopicAnswers]:
        return {name: self._topics[name] for name in names if name in self._topics}

    def _believed(self, name: str) -> str | None:
        topic = self._topics.get(name)
        return None if topic is None else topic.believed

    def of(self, topic: str) -> str | None:
        """The id of a topic; None: it is not known."""
        return self._believed(topic)

    def reads(self, partition: TopicPartition) -> str | None:
        """A partition is read from here on: of which incarnation; None: it is not known."""
        now = self._believed(partition.topic)
        if now is not None:
            self._read[partition] = _LastRead(now)
        return now

    def last_read(self, partition: TopicPartition) -> str | None:
        """Of which incarnation a partition was read last by this channel; None: it is not known."""
        last = self._read.get(partition)
        return None if last is None else last.of

    def failed(self, partition: TopicPartition) -> None:
        """The channel fails, as the topic was made anew, and somebody has to choose where it goes
        on.
        """
        if (last := self._read.get(partition)) is not None:
            last.has_failed = True

    def has_failed(self, partition: TopicPartition) -> bool:
        """Whether the channel has failed for it, and has not read it since."""
        return (last := self._read.get(partition)) is not None and last.has_failed

    def why_void(self, topic: str, belongs_to: str | None) -> str | None:
        """Why a position of the incarnation that it *belongs to* says nothing of the topic as it is
        now, if so.

        Of the id that a position belongs to the beginning is enough: no more is stored.
        """
        now = self._believed(topic)
        if now is None or belongs_to is None or now.startswith(belongs_to):
            return None
        return f"topic {topic!r} was deleted and made anew: its id was {belongs_to}, and is {now}"


def _living(answers: Sequence[TopicIds]) -> set[int]:
    """The brokers that nobody who answered takes for dead: one that is cut off from the cluster
    learns of no change.

    Where each of them takes another one for dead it is all of them.
    """
    named = set[int]().union(*(answer.alive for answer in answers))
    living = {broker for broker in named if all(broker in answer.alive for answer in answers)}
    return living if any(answer.broker in living for answer in answers) else named
