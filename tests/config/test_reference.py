from __future__ import annotations

import re
from pathlib import Path

from reactive_kafka.config import keys
from reactive_kafka.config.client_properties import PROPERTIES
from reactive_kafka.config.reference import EXPLAINED_ONCE, blocks, with_tables

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_holds_the_tables_as_they_are_now() -> None:
    """Row S15 of the faults."""
    page = PAGE.read_text()
    assert with_tables(page) == page, (
        "run python -m reactive_kafka.config.reference docs/configuration.md"
    )


def test_every_table_stands_on_the_page() -> None:
    assert set(re.findall(r"<!-- generated: (\S+) -->", PAGE.read_text())) == blocks().keys()


def test_the_tables_name_every_key_and_property() -> None:
    page = PAGE.read_text()
    sections = (*keys.NAMED_SECTIONS.values(), *keys.PLAIN_SECTIONS.values())
    names = {name.rpartition(".")[2] for section in sections for name in section.keys}
    names |= {spelling for prop in PROPERTIES for spelling in (prop.kafka, *prop.also)}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_every_key_has_a_sentence() -> None:
    for section in (*keys.NAMED_SECTIONS.values(), *keys.PLAIN_SECTIONS.values()):
        assert all(key.doc.endswith((".", "...")) for key in section.keys.values())


def test_each_phrase_that_tables_shorten_is_one_that_errors_use() -> None:
    sections = (*keys.CHANNEL_SECTIONS.values(), *keys.PLAIN_SECTIONS.values())
    expected = [key.kind.expects for section in sections for key in section.keys.values()]
    expected += [prop.kind.expects for prop in PROPERTIES]
    unused = [phrase for phrase in EXPLAINED_ONCE if not any(phrase in text for text in expected)]
    assert unused == []
