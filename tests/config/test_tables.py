from __future__ import annotations

from dataclasses import dataclass, field, fields

import pytest

from reactive_kafka.config import keys
from reactive_kafka.config.fields import described, keys_of, setting, table
from reactive_kafka.config.kinds import SIZE, TEXT, TIME
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.config.tables import RetrySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    wait_s: float = setting(TIME, "200ms", "A wait.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    name: str
    store: str = field(metadata=described(TEXT, "A store."))
    most: int = setting(SIZE, "1KiB", "A size.")
    note: str | None = setting(TEXT, None, "A note.")
    inner: Inner = field(default_factory=Inner, metadata=table(Inner))


def test_a_fields_default_is_what_the_written_one_means() -> None:
    outer = Outer(name="n", store="s")
    assert (outer.most, outer.note, outer.inner.wait_s) == (1024, None, 0.2)
    with pytest.raises(TypeError, match="store"):
        # Its key has no default, so it must be given.
        Outer(name="n")  # type: ignore[call-arg]


def test_keys_are_called_as_their_fields_without_the_unit_and_dotted_inside_a_table() -> None:
    found = keys_of(Outer)
    assert {name: key.target for name, key in found.items()} == {
        "store": "store",
        "most": "most",
        "note": "note",
        "inner.wait": "inner.wait_s",
    }
    wait = found["inner.wait"]
    assert (wait.default, wait.parsed_default, wait.doc) == ("200ms", 0.2, "A wait.")


def test_a_wrong_default_is_found_when_the_class_is_made() -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        setting(TIME, "soon", "A wait.")


def test_every_field_of_the_retries_has_a_key() -> None:
    targets = {key.target for key in keys.INCOMING.keys.values()}
    assert {f"retry.{one.name}" for one in fields(RetrySettings)} <= targets
    assert IncomingSettings(name="x", topics=(), group_id=None).retry == RetrySettings()
