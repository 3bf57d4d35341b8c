"""Checks at the start that what an application needs is installed."""

from __future__ import annotations

from reactive_kafka.broker.extras import check_connection, check_writing
from reactive_kafka.config.settings import Settings
from reactive_kafka.planning.channel_plans import AppPlan
from reactive_kafka.tracing.tracer import check_tracing


def check_extras(
    plan: AppPlan, settings: Settings, *, clients: bool, spark: bool, stores: bool
) -> None:
    """Check that the packages that the channels need are installed.

    Tests bring clients, sessions and stores of their own, which need no package.

    Args:
        clients: The application makes its Kafka clients itself.
        spark: It makes its Spark session itself.
        stores: It opens its checkpoint stores itself.

    Raises:
        MissingExtraError: A package is not installed.
        ConfigError: There is no Java that fits, or a store's URL cannot be opened.
    """
    check_tracing(settings.tracing)
    if clients:
        _check_clients(settings)
    on_spark = [channel.settings for channel in plan.incoming.values() if channel.spark is not None]
    if on_spark and spark:
        from reactive_kafka.spark.session.spark_engine import maker_for

        places = [
            channel.place("spark.mode", "ranges")
            for channel in on_spark
            if channel.spark.mode == "ranges"
        ]
        maker_for(settings.spark, ranges=bool(places), places=places)
    if stores and any(channel.checkpoint for channel in settings.incoming.values()):
        from reactive_kafka.checkpoint.stores.opening import check_stores

        check_stores(settings.incoming.values())


def _check_clients(settings: Settings) -> None:
    for incoming in settings.incoming.values():
        where = f"[incoming.{incoming.name}]"
        check_connection(where, incoming.client)
        if incoming.dead_letter_queue is not None:
            check_writing(
                f"[incoming.{incoming.name}.dead_letter_queue]", incoming.dead_letter_queue.client
            )
        elif incoming.delayed_retry is not None:
            check_writing(where, incoming.client)
    for outgoing in settings.outgoing.values():
        check_writing(f"[outgoing.{outgoing.name}]", outgoing.client)
