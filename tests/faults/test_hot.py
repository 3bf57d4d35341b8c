"""One partition, or one key, gets nearly everything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.cases import finish
from tests.faults.checker import Rules, check, report
from tests.faults.driver import Parcel, until
from tests.faults.history import Partition
from tests.faults.observer import read_records
from tests.faults.scenario import member, playing

pytestmark = [pytest.mark.kafka, pytest.mark.long_faults]

HOT = b"hot"
# With the machine busy; the hot ones wait for much longer.
IN_TIME_S = 2.0


def parcel(id: str, number: int, tp: Partition) -> Parcel:
    """Of the first partition nearly all records have one key; the others have many."""
    key = HOT if tp[1] == 0 and number % 50 else b"key-%d" % (number % 97)
    return Parcel(json.dumps({"id": id, "do": "work"}).encode(), key)


@pytest.mark.parametrize("ordering", ["partition", "key"])
async def test_a_hot_partition_and_a_hot_key_starve_no_other(
    kafka: str, tmp_path: Path, ordering: str
) -> None:
    """Row F16 of the faults."""
    async with playing(kafka, tmp_path, make=parcel) as scenario:
        scenario.load.spread_over([scenario.partitions[0]] * 100 + scenario.partitions[1:])
        life = member(
            scenario,
            "service",
            channel=f'ordering = "{ordering}"',
            options=("--latency", "0.004", "0.012"),
        )
        await life.start().ready()
        async with scenario.load.flowing(400):
            await until(lambda: len(scenario.load.sent) > 4000, 60, "they are written")
        await finish(scenario)
        stored = await read_records(kafka, scenario.partitions)
        evidence = await scenario.evidence()
    assert report(check(evidence, Rules())) == ""
    waited: dict[bool, list[float]] = {True: [], False: []}
    for one in evidence.events:
        if one.kind == "begin":
            record = stored[one.tp][one.offset]
            is_hot = one.tp[1] == 0 and (ordering == "partition" or record.key == HOT)
            waited[is_hot].append(one.t - record.t)
    assert max(waited[True]) > 3 * IN_TIME_S, "nothing was hot"
    assert len(waited[False]) > 100
    assert max(waited[False]) < IN_TIME_S, "others had to wait for the hot ones"
