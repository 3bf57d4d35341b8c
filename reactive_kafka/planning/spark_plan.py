"""Plans an incoming channel whose batches run on Spark. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reactive_kafka.channel.blueprint import RecordReading
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.formats import SchemaSource
from reactive_kafka.planning.channel_handlers import ChannelOnSpark
from reactive_kafka.planning.channel_plans import IncomingPlan
from reactive_kafka.planning.handler_settings import BATCHES_IN_FLIGHT, with_room_for
from reactive_kafka.planning.problems import ProblemReport
from reactive_kafka.planning.schema_planning import registered_of, schemas_if_used
from reactive_kafka.planning.settings_checks import check_ordering

if TYPE_CHECKING:
    from reactive_kafka.formats.json_text import TextSource


def plan_spark(on_spark: ChannelOnSpark, settings: IncomingSettings) -> IncomingPlan:
    """Plan one channel with a Spark function.

    Raises:
        ConfigError: All problems of the channel.
    """
    report = ProblemReport()
    who = on_spark.who
    _check_settings(who, settings, report)
    jobs = settings.spark.max_concurrent_jobs
    records = settings.spark.batch_max_records
    settings = with_room_for(records, BATCHES_IN_FLIGHT * jobs, settings, who, report)
    values, _ = registered_of(settings, settings.topics[0] if settings.topics else "")
    needs_texts = on_spark.decoration.needs_texts(settings)
    text_format = settings.value_deserializer if needs_texts else None
    texts = None
    if text_format is not None:
        texts = _texts(who, text_format, settings, values, report)
    problems = list[str]()
    function = on_spark.decoration.planned(settings, who, problems, texts)
    report.add(*problems)
    report.raise_if_any()
    return IncomingPlan(
        settings,
        RecordReading(schemas=schemas_if_used(values, text_format)),
        spark=function,
    )


def _check_settings(who: str, settings: IncomingSettings, report: ProblemReport) -> None:
    """Refuse what is for single records.

    A ``[incoming.NAME.spark]`` table makes the configuration refuse the same. This is for a channel
    that has no such table.
    """
    check_ordering(who, settings, report)
    if settings.keep_out_of_order_acks:
        where = settings.place("keep_out_of_order_acks", True)
        report.add(
            f"{where}: {who} has its batches stored as planned ranges, which come again whole: "
            "they have no acks to keep"
        )
    if settings.limit is not None:
        report.add(
            f"{settings.place('limit', settings.limit)}: it limits handlers, but {who} runs on "
            "Spark: use spark.max_concurrent_jobs"
        )
    refused: list[tuple[str, object]] = [
        ("filter", settings.filter),
        ("max_record_age", settings.max_record_age_s),
    ]
    refused += [
        (f"filter_headers.{name}", values) for name, values in settings.filter_headers.items()
    ]
    for key, value in refused:
        if value is not None:
            report.add(
                f"{settings.place(key, value)}: {who} gets whole batches: filter the DataFrame "
                "in it"
            )


def _texts(
    who: str,
    text_format: str,
    settings: IncomingSettings,
    values: SchemaSource,
    report: ProblemReport,
) -> TextSource | None:
    from reactive_kafka.formats.json_text import text_source

    return report.attempt(who, text_source, text_format, values, settings.cloud_events)
