"""Each README of an example says what you see and how to change it, and what it shows is real.

Its commands are typed into terminals, as in :mod:`tests.examples.typed_page`. The broker is the one
of the session. The output of examples that take longer is compared where they are run anyway.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient

from tests import pages
from tests.examples.typed_page import TypedPage, section, shown

EXAMPLES = pages.ROOT / "examples"
FOLDERS = sorted(readme.parent.name for readme in EXAMPLES.glob("*/README.md"))
COMPARED_ELSEWHERE = {
    "bookshop": "tests/examples/test_bookshop.py",
    "clickstream": "tests/examples/test_clickstream.py",
    "demo": "tests/cli/test_demo.py",
    "sinks": "tests/examples/test_sinks.py",
}
TYPED = [folder for folder in FOLDERS if folder not in COMPARED_ELSEWHERE]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_readme_shows_output_and_two_to_four_changes(folder: str) -> None:
    name = f"examples/{folder}/README.md"
    assert shown(name).strip()
    changes = re.findall(r"^- ", section(name, "Change it"), re.MULTILINE)
    assert 2 <= len(changes) <= 4


@pytest.mark.parametrize(("folder", "test"), COMPARED_ELSEWHERE.items())
def test_output_that_is_not_typed_here_is_compared_elsewhere(folder: str, test: str) -> None:
    assert f'shown("examples/{folder}/README.md")' in (pages.ROOT / test).read_text()


def test_the_gallery_leads_to_each_example() -> None:
    linked = pages.links(EXAMPLES / "README.md")
    folders = [
        path.name
        for path in EXAMPLES.iterdir()
        if any(path.glob("*.py")) or any(path.glob("*/*.py"))
    ]
    assert sorted(folders) == FOLDERS
    assert {f"{folder}/README.md" for folder in FOLDERS} <= {*linked}


@pytest_asyncio.fixture
async def empty_kafka(kafka: str) -> str:
    """The session's broker, without the topics of tests before: pages share names of topics."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        topics = [topic for topic in await admin.list_topics() if not topic.startswith("__")]
        await admin.delete_topics(topics)
    finally:
        await admin.close()
    return kafka


@pytest.mark.kafka
@pytest.mark.parametrize("folder", TYPED)
def test_an_example_does_what_its_readme_shows(
    folder: str, empty_kafka: str, tmp_path: Path
) -> None:
    copy = shutil.copytree(EXAMPLES / folder, tmp_path / folder)
    page = TypedPage(f"examples/{folder}/README.md", copy, kafka=empty_kafka)
    for file in (*copy.rglob("*.py"), *copy.rglob("*.toml")):
        file.write_text(page.with_own_addresses(file.read_text()))
    assert page.run() >= 2
