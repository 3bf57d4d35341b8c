"""Who is measured, with how many records. Values only; what we promise about the outcome is in
benchmarks.goals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Series = Literal[
    "no-op",
    "no-op, 16 partitions",
    "no-op, 100 partitions",
    "no-op, 1,000 partitions",
    "no-op, by key",
    "no-op, behind a record that is not settled",
    "10 ms",
    "JSON",
    "Avro",
    "sending",
]
"""What the rows of one table have in common: the handler, and the topic where it has not four
partitions. *JSON* and
*Avro*: the handler gets an order and does nothing. *sending*: records of 100 bytes without a key
  are written to a topic
of four partitions, each of them confirmed, or each of their transactions."""

Values = Literal["plain", "JSON", "Avro"]
"""What is in the records of a topic: 100 bytes of no format, or an order."""


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """A topic of so many partitions with such values, of so many different keys (0: the records
    have none).
    """

    partitions: int
    values: Values
    keys: int = 0

    def __str__(self) -> str:
        """For the name of the topic, and for whoever watches."""
        keys = f"-{self.keys}-keys" if self.keys else ""
        return f"{self.values.lower()}-{self.partitions}{keys}"


FEW_PARTITIONS = 4
PARTITIONS: dict[Series, int] = {
    "no-op, 16 partitions": 16,
    "no-op, 100 partitions": 100,
    "no-op, 1,000 partitions": 1000,
    "no-op, behind a record that is not settled": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One row of a table of throughputs.

    Args:
        name: What the table calls it.
        run: ``module:function`` in benchmarks.contenders.
        series: Which handler it is measured with.
        records: How many records a run handles; None for all of the topic.
        keys: How many different keys they have; 0: none.
        commits: When it commits, for the table.
        reads_all: It is to have committed the whole topic when it ends.
        reads: It reads the topic; else it only writes to another one.
        marks: Its transactions leave markers in the topic that it writes to.
        everywhere: It is measured on each Python, because the interpreter has a large share in it.
    """

    name: str
    run: str
    series: Series
    records: int | None = None
    keys: int = 0
    commits: str = "each second"
    reads_all: bool = False
    reads: bool = True
    marks: bool = False
    everywhere: bool = False

    @property
    def partitions(self) -> int:
        """How many the topic has that it reads."""
        return PARTITIONS.get(self.series, FEW_PARTITIONS)

    @property
    def values(self) -> Values:
        """What is in the topic that it reads."""
        return self.series if self.series in ("JSON", "Avro") else "plain"

    @property
    def source(self) -> Source:
        """Which topic it reads."""
        return Source(self.partitions, self.values, self.keys)


GETMANY = "aiokafka `getmany(500)`"
ASYNC_FOR = "aiokafka `async for`"
OURS_MESSAGE = "reactive_kafka, `Message`"
OURS_BYTES = "reactive_kafka, `bytes`"
OURS_BATCH = "reactive_kafka, `Batch[bytes]` of 500"
CONSUME = "confluent-kafka `consume(500)`, `fetch.queue.backoff.ms = 10`"
FASTSTREAM_BATCH = "FastStream `batch=True`"
GETMANY_16 = f"{GETMANY}, 16 partitions"
OURS_MESSAGE_16 = f"{OURS_MESSAGE}, 16 partitions"
OURS_BYTES_16 = f"{OURS_BYTES}, 16 partitions"
OURS_BATCH_16 = f"{OURS_BATCH}, 16 partitions"
GETMANY_100 = f"{GETMANY}, 100 partitions"
OURS_MESSAGE_100 = f"{OURS_MESSAGE}, 100 partitions"
OURS_BYTES_100 = f"{OURS_BYTES}, 100 partitions"
OURS_AT_ONCE_100 = f"{OURS_BYTES_100}, `concurrency = 1_000`"
GETMANY_1000 = f"{GETMANY}, 1,000 partitions"
OURS_MESSAGE_1000 = f"{OURS_MESSAGE}, 1,000 partitions"
OURS_BYTES_1000 = f"{OURS_BYTES}, 1,000 partitions"
OURS_BY_KEY = {
    keys: f"reactive_kafka, `Message`, {keys:,} keys" for keys in (10, 10_000, 1_000_000)
}
OURS_KEYLESS = 'reactive_kafka, `Message`, no keys, `keyless = "unordered"`'
OURS_BEHIND = {
    size: f"reactive_kafka, `bytes`, {size:,} settled behind it"
    for size in (1_000, 100_000, 1_000_000)
}
SEQUENTIAL = "aiokafka `async for`, 10 ms"
OURS_WAITING = {
    at_once: f"reactive_kafka, `concurrency = {at_once:_}`" for at_once in (256, 1_000, 10_000)
}
RAW_SEND = "aiokafka `send`"
CONFLUENT = "confluent-kafka `produce`"
OURS_EMIT = "reactive_kafka, `send_nowait`"
IN_TRANSACTIONS = {
    size: f"reactive_kafka, transactions of {size:,} records" for size in (100, 1_000, 10_000)
}
WITH_FLUSHES = {
    size: f"reactive_kafka, `flush` after each {size:,} records" for size in IN_TRANSACTIONS
}
OURS_CHAIN = "reactive_kafka, topic to handler to topic"
OURS_CHAIN_10_000 = f"{OURS_CHAIN}, `max_in_flight = 10_000`"
GETMANY_JSON = f"{GETMANY} and `json.loads`"
OURS_DICT = "reactive_kafka, `dict`"
OURS_DATACLASS = "reactive_kafka, a dataclass"
OURS_PYDANTIC = "reactive_kafka, a pydantic model"
OURS_STRUCT = "reactive_kafka, a `msgspec.Struct`"
CONFLUENT_AVRO = f"{CONSUME}, and `AvroDeserializer`"

WAIT_S = 0.010
# Enough for a contender that handles about 100 a second.
FEW = 400
MANY = 50_000
VERY_MANY = 500_000
KEYED = BEHIND = 1_000_000
DECODED = 500_000
DECODED_SLOWLY = 200_000

CONTENDERS = (
    Contender(name=GETMANY, run="raw:getmany", series="no-op", everywhere=True),
    Contender(
        name=OURS_MESSAGE, run="ours:on_message", series="no-op", reads_all=True, everywhere=True
    ),
    Contender(
        name=OURS_BYTES, run="ours:on_bytes", series="no-op", reads_all=True, everywhere=True
    ),
    Contender(
        name=OURS_BATCH, run="ours:on_batch", series="no-op", reads_all=True, everywhere=True
    ),
    Contender(name=CONSUME, run="librdkafka:consume", series="no-op"),
    Contender(name=ASYNC_FOR, run="raw:async_for", series="no-op"),
    Contender(name="kstreams `GetMany(500)`", run="kstreams_peer:getmany", series="no-op"),
    Contender(
        name=FASTSTREAM_BATCH, run="faststream_peer:batch", series="no-op", commits="each batch"
    ),
    Contender(
        name="FastStream, a record at a time",
        run="faststream_peer:each",
        series="no-op",
        records=FEW,
        commits="each record",
    ),
    Contender(name=GETMANY_16, run="raw:getmany", series="no-op, 16 partitions"),
    Contender(
        name=OURS_MESSAGE_16, run="ours:on_message", series="no-op, 16 partitions", reads_all=True
    ),
    Contender(
        name=OURS_BYTES_16, run="ours:on_bytes", series="no-op, 16 partitions", reads_all=True
    ),
    Contender(
        name=OURS_BATCH_16, run="ours:on_batch", series="no-op, 16 partitions", reads_all=True
    ),
    Contender(name=GETMANY_100, run="raw:getmany", series="no-op, 100 partitions"),
    Contender(
        name=OURS_MESSAGE_100, run="ours:on_message", series="no-op, 100 partitions", reads_all=True
    ),
    Contender(
        name=OURS_BYTES_100, run="ours:on_bytes", series="no-op, 100 partitions", reads_all=True
    ),
    Contender(
        name=OURS_AT_ONCE_100,
        run="ours:on_bytes_at_once",
        series="no-op, 100 partitions",
        reads_all=True,
    ),
    Contender(name=GETMANY_1000, run="raw:getmany", series="no-op, 1,000 partitions"),
    Contender(
        name=OURS_MESSAGE_1000,
        run="ours:on_message",
        series="no-op, 1,000 partitions",
        reads_all=True,
    ),
    Contender(
        name=OURS_BYTES_1000, run="ours:on_bytes", series="no-op, 1,000 partitions", reads_all=True
    ),
    *(
        Contender(
            name=name,
            run=f"ours_ordering:by_key_{keys}",
            series="no-op, by key",
            records=KEYED,
            keys=keys,
            everywhere=True,
        )
        for keys, name in OURS_BY_KEY.items()
    ),
    Contender(
        name=OURS_KEYLESS,
        run="ours_ordering:keyless",
        series="no-op, by key",
        records=KEYED,
        everywhere=True,
    ),
    *(
        Contender(
            name=name,
            run=f"ours_ordering:behind_{size}",
            series="no-op, behind a record that is not settled",
            records=BEHIND,
        )
        for size, name in OURS_BEHIND.items()
    ),
    Contender(name=SEQUENTIAL, run="raw:async_for", series="10 ms", records=FEW),
    Contender(
        name="FastStream, 10 ms",
        run="faststream_peer:each",
        series="10 ms",
        records=FEW,
        commits="each record",
    ),
    Contender(name=OURS_WAITING[256], run="ours:concurrent", series="10 ms", records=MANY),
    *(
        Contender(
            name=OURS_WAITING[at_once],
            run=f"ours:concurrent_{at_once}",
            series="10 ms",
            records=VERY_MANY,
            everywhere=True,
        )
        for at_once in (1_000, 10_000)
    ),
    Contender(
        name=GETMANY_JSON, run="raw:getmany_json", series="JSON", records=DECODED, everywhere=True
    ),
    Contender(
        name=OURS_DICT,
        run="ours_formats:json_dict",
        series="JSON",
        records=DECODED,
        everywhere=True,
    ),
    Contender(
        name=OURS_DATACLASS,
        run="ours_formats:json_dataclass",
        series="JSON",
        records=DECODED,
        everywhere=True,
    ),
    Contender(
        name=OURS_PYDANTIC,
        run="ours_formats:json_pydantic",
        series="JSON",
        records=DECODED,
        everywhere=True,
    ),
    Contender(
        name=OURS_STRUCT,
        run="ours_formats:json_struct",
        series="JSON",
        records=DECODED,
        everywhere=True,
    ),
    Contender(
        name="FastStream `batch=True`, dicts",
        run="faststream_peer:json_dict",
        series="JSON",
        records=DECODED_SLOWLY,
        commits="each batch",
    ),
    Contender(
        name="FastStream `batch=True`, pydantic models",
        run="faststream_peer:json_pydantic",
        series="JSON",
        records=DECODED_SLOWLY,
        commits="each batch",
    ),
    Contender(
        name=CONFLUENT_AVRO, run="librdkafka:consume_avro", series="Avro", records=DECODED_SLOWLY
    ),
    Contender(
        name="reactive_kafka, Avro, `dict`",
        run="ours_formats:avro_dict",
        series="Avro",
        records=DECODED,
    ),
    Contender(
        name="reactive_kafka, Avro, a dataclass",
        run="ours_formats:avro_dataclass",
        series="Avro",
        records=DECODED,
    ),
    Contender(
        name=RAW_SEND, run="raw:send", series="sending", records=200_000, reads=False, commits=""
    ),
    Contender(
        name=CONFLUENT,
        run="librdkafka:produce",
        series="sending",
        records=1_000_000,
        reads=False,
        commits="",
    ),
    Contender(
        name=OURS_EMIT,
        run="ours:emit",
        series="sending",
        records=1_000_000,
        reads=False,
        commits="",
    ),
    Contender(name=OURS_CHAIN, run="ours:chain", series="sending", records=1_000_000),
    Contender(name=OURS_CHAIN_10_000, run="ours:chain_10_000", series="sending", records=1_000_000),
    *(
        Contender(
            name=names[size],
            run=f"ours:{run}_{size}",
            series="sending",
            records=size * 200 if size < 1_000 else 500_000,
            reads=False,
            commits="",
            marks=names is IN_TRANSACTIONS,
        )
        for size in IN_TRANSACTIONS
        for names, run in ((IN_TRANSACTIONS, "transactions"), (WITH_FLUSHES, "flushes"))
    ),
)

BASELINES: dict[Series, str] = {
    "no-op": GETMANY,
    "no-op, 16 partitions": GETMANY_16,
    "no-op, 100 partitions": GETMANY_100,
    "no-op, 1,000 partitions": GETMANY_1000,
    "no-op, by key": OURS_BY_KEY[10],
    "no-op, behind a record that is not settled": OURS_BEHIND[1_000],
    "10 ms": SEQUENTIAL,
    "JSON": GETMANY_JSON,
    "Avro": CONFLUENT_AVRO,
    "sending": RAW_SEND,
}
