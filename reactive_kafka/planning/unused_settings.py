"""Warns of settings that have no effect, because the channel has another kind of function. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reactive_kafka.config.keys import INCOMING
from reactive_kafka.config.settings import IncomingSettings, Settings
from reactive_kafka.planning.channel_handlers import ChannelHandler
from reactive_kafka.planning.sharing import handlers_taking_all


def unused_settings(
    settings: IncomingSettings, handlers: Sequence[ChannelHandler]
) -> Iterator[str]:
    """Yield a warning for each setting of a channel that has no effect with these handlers.

    Only the channel's own settings are judged: ``[kafka]`` has the defaults of all channels. It is
    not for channels on Spark, where a setting for handlers is an error.
    """
    own = {key: place for key, place in settings.places.items() if "[kafka]" not in place}
    if not any(handler.takes_batches for handler in handlers):
        batch_settings = {
            "batch_max_records": settings.batch_max_records,
            "batch_max_bytes": settings.batch_max_bytes,
            "batch_max_wait": settings.batch_max_wait_s,
        }
        for key, value in batch_settings.items():
            if key in own and value != INCOMING.keys[key].parsed_default:
                yield f"{own[key]}: has no effect: no Batch handler has this channel"
    if settings.ready != "assigned" and not settings.health_enabled and "ready" in own:
        yield f"{own['ready']}: has no effect: health_enabled = false takes it out of every probe"
    for key in ("attempt_timeout", "concurrency_per_partition", "limit"):
        if not handlers and key in own:
            yield f"{own[key]}: has no effect: no handler has this channel"
    if not any(handler.outgoing for handler in handlers) and "stale_results" in own:
        yield f"{own['stale_results']}: has no effect: no handler of the channel sends anything"
    if settings.broadcast and "broadcast" in own and len(handlers) < 2:
        count = "one handler" if handlers else "no handler"
        yield f"{own['broadcast']}: has no effect: the channel has {count}"
    if settings.unmatched != "nack" and "unmatched" in own:
        takers = handlers_taking_all(handlers, settings)
        if takers:
            names = " and ".join(handler.who for handler in takers)
            verb = "takes" if len(takers) == 1 else "take"
            yield f"{own['unmatched']}: has no effect: {names} {verb} every record"
    for key, place in own.items():
        if key.partition(".")[0] == "spark":
            yield f"{place}: has no effect: no @app.spark has this channel"
            return


def topics_never_created(settings: Settings) -> Iterator[str]:
    """Yield a warning for each topic with ``create = true`` that no channel reads or writes."""
    for name, topic in settings.topics.items():
        if topic.create and not _is_used(name, settings):
            yield f"{topic.place} create = true: has no effect: no channel reads or writes it"


def _is_used(topic: str, settings: Settings) -> bool:
    if any(channel.topic == topic for channel in settings.outgoing.values()):
        return True
    for channel in settings.incoming.values():
        retries = channel.delayed_retry
        letters = channel.dead_letter_queue
        if (
            channel.subscription.reads(topic)
            or (retries is not None and topic in retries.topics)
            or (letters is not None and letters.topic == topic)
        ):
            return True
    return False
