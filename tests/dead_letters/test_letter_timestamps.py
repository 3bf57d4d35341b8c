"""Which timestamp a replayed record gets: its own, unless the target would delete or refuse it for
that.
"""

from __future__ import annotations

import pytest

from reactive_kafka.dead_letters.timestamps import limits_of

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
FOR_EVER = str(2**63 - 1)
WEEK = {"cleanup.policy": "delete", "retention.ms": str(7 * DAY_MS)}
KAFKA_4 = {
    **WEEK,
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": FOR_EVER,
    "message.timestamp.after.max.ms": "3600000",
}
KAFKA_3 = {
    **WEEK,
    "message.timestamp.type": "CreateTime",
    "message.timestamp.difference.max.ms": FOR_EVER,
}


@pytest.mark.parametrize(
    ("configs", "age_ms", "why"),
    [
        (WEEK, 7 * DAY_MS, None),
        (WEEK, 7 * DAY_MS + 1, "retention.ms = 604800000"),
        (KAFKA_4, 30 * DAY_MS, "retention.ms = 604800000"),
        (KAFKA_3, 30 * DAY_MS, "retention.ms = 604800000"),
        ({**KAFKA_4, "cleanup.policy": "compact,delete"}, 30 * DAY_MS, "retention.ms = 604800000"),
        ({**KAFKA_4, "cleanup.policy": "compact"}, 30 * DAY_MS, None),
        ({**KAFKA_4, "cleanup.policy": ""}, 30 * DAY_MS, None),
        ({**KAFKA_4, "retention.ms": "-1"}, 30 * DAY_MS, None),
        ({**KAFKA_4, "retention.ms": "0"}, 1, "retention.ms = 0"),
        ({**KAFKA_4, "message.timestamp.type": "LogAppendTime"}, 30 * DAY_MS, None),
        (
            {**KAFKA_4, "message.timestamp.before.max.ms": "1000"},
            1001,
            "message.timestamp.before.max.ms = 1000",
        ),
        (
            {**KAFKA_3, "message.timestamp.difference.max.ms": "1000"},
            1001,
            "message.timestamp.difference.max.ms = 1000",
        ),
        (KAFKA_4, -3_600_000, None),
        (KAFKA_4, -3_600_001, "message.timestamp.after.max.ms = 3600000"),
        (KAFKA_3, -30 * DAY_MS, None),
        (
            {**KAFKA_3, "message.timestamp.difference.max.ms": "5"},
            -6,
            "message.timestamp.difference.max.ms = 5",
        ),
        ({}, 30 * DAY_MS, None),
    ],
)
def test_a_record_of_this_age_stays_or_the_config_is_named_that_it_breaks(
    configs: dict[str, str | None], age_ms: int, why: str | None
) -> None:
    assert limits_of(configs).against(NOW_MS - age_ms, NOW_MS) == why
