"""The word count of examples/word_count is right for whoever reads what is committed, also when
transactions fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from reactive_kafka.broker.memory.partition_log import StoredRecord
from reactive_kafka.errors import OutcomeUnknownError, TransientBrokerError
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.helpers import in_virtual_time, make_broker, tp, until
from tests.cli.process import cli
from tests.examples.spark import example

FOLDER = Path(__file__).parents[2] / "examples" / "word_count"
SENTENCES = ["The cat and the hat", "the hat", "A cat, a hat: and THE end!"] * 20
WORDS = Counter({"the": 80, "cat": 40, "and": 40, "hat": 60, "a": 40, "end": 20})


async def count_all(broker: MemoryBroker) -> ModuleType:
    """Run the example until every sentence is done, with batches of seven; its module."""
    module = example("word_count/word_count.py")
    few = {"incoming": {"sentences": {"batch_max_records": 7}}}
    async with TestApp(module.app, broker=broker, overrides=few) as test:
        for number, sentence in enumerate(SENTENCES):
            await test.send("sentences", sentence, partition=number % 2)
        await test.settled(60)
    return module


def sums(records: Iterable[StoredRecord]) -> Counter[str]:
    found: Counter[str] = Counter()
    for record in records:
        found[(record.key or b"").decode()] += int(record.value or b"0")
    return found


def everything(broker: MemoryBroker) -> list[StoredRecord]:
    """What a reader sees that does not ask for ``read_committed``."""
    return [
        record
        for number in range(broker.topics()["counts"])
        for record in broker.log(tp(number, "counts"))
    ]


def committed(broker: MemoryBroker) -> list[StoredRecord]:
    return [
        record
        for number in range(broker.topics()["counts"])
        for record in broker.committed_log(tp(number, "counts"))
    ]


@in_virtual_time
async def test_each_word_is_counted() -> None:
    broker = make_broker(2)
    await count_all(broker)
    assert sums(committed(broker)) == WORDS
    assert len(committed(broker)) < sum(WORDS.values()), "batches count together"
    await broker.close()


@in_virtual_time
async def test_aborted_counts_are_sent_again_and_no_reader_of_committed_ones_adds_them_twice() -> (
    None
):
    broker = make_broker(2)
    broker.fail_next("commit_in", TransientBrokerError("away"), 3)
    broker.fail_next("end", OutcomeUnknownError("no answer"), 2, stored=True)
    await count_all(broker)
    assert sums(committed(broker)) == WORDS
    assert sums(everything(broker)) > WORDS, "nothing was aborted"
    await broker.close()


@in_virtual_time
async def test_the_totals_are_those_of_what_is_committed() -> None:
    broker = make_broker(2)
    broker.fail_next("commit_in", TransientBrokerError("away"), 3)
    await count_all(broker)
    module = example("word_count/totals.py")
    async with TestApp(module.app, broker=broker):
        await until(lambda: module.totals == WORDS)
    await broker.close()


def test_both_applications_pass_their_check() -> None:
    for target in ("word_count:app", "totals:app"):
        ended = cli("check", target, cwd=FOLDER)
        assert ended.code == 0, ended.err
