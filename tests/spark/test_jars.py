"""The Kafka connector's jars: fetched once, checked before Spark starts, and what is wrong is
named.
"""

from __future__ import annotations

import hashlib
import zipfile
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest

from reactive_kafka.errors import ConfigError
from reactive_kafka.spark.session import kafka_source
from reactive_kafka.spark.session.kafka_source import CONNECTOR, PINNED, brings_connector
from tests.broker.downloads import cannot_be_had, pinned_jars

# Stands in for Maven: leaves a jar (a zip without files) for each dependency of its POM, and notes
# each call.
MAVEN = """\
#!/bin/sh
echo called >> {calls}
for word in "$@"; do
  case "$word" in -DoutputDirectory=*) out="${{word#*=}}" ;; esac
done
/bin/mkdir -p "$out"
for jar in {jars}; do /bin/cp {empty} "$out/$jar"; done
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REACTIVE_KAFKA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "cache"


def empty_jar(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    zipfile.ZipFile(path, "w").close()
    return path


def install_maven(tmp_path: Path, jars: list[str]) -> Path:
    """Puts a stand-in on the path; returns the file with a line for each call."""
    calls, maven = tmp_path / "calls", tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(
        MAVEN.format(calls=calls, jars=" ".join(jars), empty=empty_jar(tmp_path / "empty.jar"))
    )
    maven.chmod(0o755)
    return calls


def folder_with(tmp_path: Path, *jars: str) -> Path:
    for jar in jars:
        empty_jar(tmp_path / "jars" / jar)
    return tmp_path / "jars"


ALL = [artifact.jar for artifact in PINNED]
EMPTY_ZIP = b"PK\x05\x06" + bytes(18)
EMPTY = dict.fromkeys(ALL, hashlib.sha256(EMPTY_ZIP).hexdigest())
connector_jars = partial(kafka_source.connector_jars, pinned=EMPTY)
fetch_connector = partial(kafka_source.fetch_connector, pinned=EMPTY)


def test_the_pinned_connector_fits_the_pyspark_that_the_tests_run_with() -> None:
    assert CONNECTOR.version.split(".")[:2] == version("pyspark").split(".")[:2]


def test_the_set_is_fetched_once_and_copied_from_then_on(tmp_path: Path, cache: Path) -> None:
    calls = install_maven(tmp_path, ALL)
    first, second = tmp_path / "deep" / "one", tmp_path / "two"
    assert [fetch_connector(first), fetch_connector(second)] == [first, second]
    assert fetch_connector() == cache / f"spark-connector-{CONNECTOR.version}"
    assert calls.read_text() == "called\n"
    for folder in (first, second, None):
        assert [jar.name for jar in connector_jars(folder)] == ALL
    assert sorted(path.name for path in first.iterdir()) == sorted(ALL)


def test_half_a_set_is_none_and_says_what_maven_could_not_fetch(
    tmp_path: Path, cache: Path
) -> None:
    install_maven(tmp_path, ALL[:3])
    with cannot_be_had("could not fetch Spark's Kafka connector"):
        fetch_connector(tmp_path / "jars")
    assert not (tmp_path / "jars").exists()
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_without_maven_it_says_what_to_install(tmp_path: Path, cache: Path) -> None:
    with cannot_be_had(r"connector is not in .*mvn.*apt-get install maven"):
        fetch_connector(tmp_path)


def test_jars_of_others_stay_and_another_version_is_refused(tmp_path: Path, cache: Path) -> None:
    install_maven(tmp_path, ALL)
    folder = folder_with(tmp_path, "mine.jar")
    fetch_connector(folder)
    assert (folder / "mine.jar").exists()
    empty_jar(folder / "kafka-clients-3.4.0.jar")
    with pytest.raises(
        ConfigError, match=r"kafka-clients-3\.4\.0\.jar already, in place of kafka-clients-3\.9\.1"
    ):
        fetch_connector(folder)


@pytest.mark.parametrize("missing", ALL)
def test_a_missing_jar_is_named_with_what_to_run(missing: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path, *(jar for jar in ALL if jar != missing))
    with pytest.raises(ConfigError) as refused:
        connector_jars(folder)
    for text in (missing, str(folder), '"reactive-kafka spark jars --to DIR"', "[spark]"):
        assert text in str(refused.value)


def test_a_folder_that_does_not_exist_has_no_jars(cache: Path) -> None:
    with pytest.raises(ConfigError, match="spark jars --to DIR"):
        connector_jars(cache / "nowhere")


def test_two_versions_of_a_jar_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"several versions of kafka-clients: kafka-clients-3\.4\.0\.jar, kafka-"
    ):
        connector_jars(folder_with(tmp_path, *ALL, "kafka-clients-3.4.0.jar"))


def test_a_damaged_jar_is_named(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, *ALL)
    (folder / ALL[2]).write_bytes(b"PK half of it")
    with pytest.raises(ConfigError, match=rf"{ALL[2]} is damaged"):
        connector_jars(folder)


def test_a_jar_by_a_pinned_name_with_another_content_is_refused(tmp_path: Path) -> None:
    """Row S14 of the faults."""
    folder = folder_with(tmp_path, *ALL)
    with zipfile.ZipFile(folder / ALL[2], "w") as forged:
        forged.writestr("Evil.class", "x")
    with pytest.raises(
        ConfigError, match=rf'{ALL[2]} is damaged or forged: its SHA-256 is .*"reactive-kafka spark'
    ):
        connector_jars(folder)


def test_every_jar_of_the_set_is_pinned() -> None:
    assert set(ALL) <= pinned_jars()


def test_a_connector_of_another_spark_is_refused_and_its_own_is_taken(tmp_path: Path) -> None:
    others = f"{CONNECTOR.name}-3.5.1.jar"
    folder = folder_with(tmp_path, others, *ALL[1:])
    with pytest.raises(
        ConfigError, match=rf"Spark 3\.5\.1, and PySpark {version('pyspark')} .*'pyspark==3\.5\.\*'"
    ):
        connector_jars(folder)
    (folder / others).rename(folder / f"{CONNECTOR.name}-{version('pyspark')}.jar")
    assert connector_jars(folder)[0].name == f"{CONNECTOR.name}-{version('pyspark')}.jar"


@pytest.mark.parametrize(
    ("conf", "brings"),
    [
        ({}, False),
        ({"spark.jars": "/a/my-udfs.jar"}, False),
        ({"spark.jars": "/a/my-udfs.jar,/b/spark-sql-kafka-0-10_2.13-4.1.0.jar"}, True),
        ({"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.0"}, True),
    ],
)
def test_the_users_own_connector_is_noticed(conf: dict[str, str], brings: bool) -> None:
    assert brings_connector(conf) is brings
