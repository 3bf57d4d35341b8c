"""The keys of Spark: what may stand together, and what each error tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reactive_kafka import App
from reactive_kafka.config.dump import dump
from reactive_kafka.config.settings import SparkSettings
from reactive_kafka.config.tables import SparkChannelSettings
from reactive_kafka.errors import ConfigError
from tests.config.loading import incoming, loaded, only_problem, problems, write

CANARY = "canary-5f2"


def test_a_problem_names_file_line_channel_key_value_and_what_is_allowed(tmp_path: Path) -> None:
    text = '[incoming.clicks]\ngroup_id = "g"\n[incoming.clicks.spark]\non_failure = "bisct"\n'
    path = write(tmp_path, "my.toml", text)
    assert only_problem(path) == (
        f"{path}, line 4: [incoming.clicks] spark.on_failure = 'bisct': "
        'expected one of "nack", "bisect"; did you mean \'bisect\'?'
    )


@pytest.mark.parametrize(
    ("spark", "said"),
    [
        (
            {"mode": "range"},
            "spark.mode = 'range': expected one of \"records\", \"ranges\"; did you mean 'ranges'?",
        ),
        (
            {"max_concurrent_jobs": 0},
            "spark.max_concurrent_jobs = 0: expected a whole number from 1 to 256",
        ),
        (
            {"max_concurrent_jobs": 257},
            "spark.max_concurrent_jobs = 257: expected a whole number from 1 to 256",
        ),
        (
            {"max_concurrent_jobs": True},
            "spark.max_concurrent_jobs = true: expected a whole number",
        ),
        ({"pool": ""}, "spark.pool = '': expected a string that is not empty"),
        ({"pool": " "}, "spark.pool = ' ': expected a string that is not empty"),
        ({"pool": 3}, "spark.pool = 3: expected a string that is not empty"),
        (
            {"on_failure": "ignore"},
            'spark.on_failure = \'ignore\': expected one of "nack", "bisect"',
        ),
        ({"timeout": 0}, "spark.timeout = 0: expected a duration"),
        (
            {"batch_max_records": 0},
            "spark.batch_max_records = 0: expected a whole number of at least 1",
        ),
        ({"max_jobs": 2}, "spark.max_jobs = 2: unknown key"),
    ],
)
def test_a_channel_is_told_what_is_wrong_with_its_spark_table(
    spark: dict[str, Any], said: str
) -> None:
    line = only_problem(incoming(spark=spark))
    assert line.startswith("code: [incoming.orders] ")
    assert said in line


@pytest.mark.parametrize(
    "remote", ["sc://h", "sc://h:15002", "sc://[::1]:1", "sc://h.x:1/;use_ssl=true;token=a"]
)
def test_a_connect_server_is_a_host_with_or_without_a_port_and_parameters(remote: str) -> None:
    assert loaded(incoming() | {"spark": {"remote": remote}}).spark == SparkSettings(remote=remote)


@pytest.mark.parametrize(
    "remote",
    [
        "",
        "h:15002",
        "spark://h:7077",
        "sc://",
        "sc://h:0",
        "sc://h:65536",
        "sc://h:x",
        "sc://h/path",
        "sc://h;a",
    ],
)
def test_anything_else_is_no_connect_server(remote: str) -> None:
    line = only_problem(incoming() | {"spark": {"remote": remote}})
    assert line.startswith(
        f'code: [spark] remote = {remote!r}: expected a Spark Connect server: "sc://host" or '
    )


def test_the_token_of_a_connect_server_is_never_shown() -> None:
    remote = f"sc://host:1/;use_ssl=true;token={CANARY}"
    settings = loaded(incoming() | {"spark": {"remote": remote}})
    assert settings.spark.remote == remote
    assert CANARY not in repr(settings)
    assert dump(settings)["spark"] == {"remote": "sc://host:1/;use_ssl=true;token=***", "conf": {}}
    line = only_problem(incoming() | {"spark": {"remote": f"sc://ho st/;token={CANARY}"}})
    assert "token=***" in line
    assert CANARY not in line


MASTERS = (
    "local",
    "local[2]",
    "local[*]",
    "local[2,4]",
    "local[*, 4]",
    "local-cluster[2,1,1024]",
    "spark://h:7077",
    "spark://a:7077,b:7077",
    "yarn",
    "k8s://https://h:443",
)


@pytest.mark.parametrize("master", MASTERS)
def test_a_master_is_one_that_spark_knows(master: str) -> None:
    assert loaded(incoming() | {"spark": {"master": master}}).spark == SparkSettings(master=master)


@pytest.mark.parametrize(
    ("master", "near"),
    [
        ("lokal[2]", "local[2]"),
        ("Local", "local"),
        ("local[x]", "local[*]"),
        ("local[0]", "local[*]"),
        ("local 2", "local"),
        ("local-cluster[2]", "local-cluster[2,1,1024]"),
        ("sparc://h:7077", "spark://..."),
        ("spark:h:7077", "spark://..."),
        ("k8:https://h", "k8s://..."),
        ("Yarn", "yarn"),
        ("h:7077", None),
        ("mesos://h", None),
        ("", None),
        (2, None),
    ],
)
def test_any_other_master_is_refused_with_the_one_that_was_meant(
    master: Any, near: str | None
) -> None:
    line = only_problem(incoming() | {"spark": {"master": master}})
    assert line.startswith(f"code: [spark] master = {master!r}: expected a Spark master: ")
    assert line.endswith(f"; did you mean {near!r}?" if near else '"yarn" or "k8s://..."')


def test_a_wrong_master_shows_no_password() -> None:
    assert CANARY not in only_problem(
        incoming() | {"spark": {"master": f"spork://u:{CANARY}@h:7077"}}
    )


@pytest.mark.parametrize("name", ["master", "remote"])
def test_what_spark_has_a_key_for_is_refused_among_its_properties(
    name: str, tmp_path: Path
) -> None:
    text = f'[spark.conf]\n"spark.{name}" = "local[3]"\n[incoming.a]\ngroup_id = "g"\n'
    path = write(tmp_path, "my.toml", text)
    line = only_problem(path)
    assert line.startswith(
        f"{path}, line 2: [spark] conf.spark.{name} = 'local[3]': write {name} = "
    )
    assert line.endswith(" in [spark]")


@pytest.mark.parametrize("mode", ["records", "ranges"])
def test_a_folder_without_jars_is_named_with_its_place_whether_channels_need_it_or_not(
    mode: str, tmp_path: Path
) -> None:
    text = f'[incoming.a]\ngroup_id = "g"\nspark.mode = "{mode}"\n[spark]\njars = "/none"\n'
    path = write(tmp_path, "my.toml", text)
    (line,) = _refused(path)
    assert line.startswith(f"{path}, line 5: [spark] jars = '/none': /none has no spark-sql-kafka")
    assert "ranges" not in line


def test_without_jars_each_channel_that_needs_them_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REACTIVE_KAFKA_CACHE", str(tmp_path / "cache"))
    text = '[incoming.a]\ngroup_id = "g"\nspark.mode = "ranges"\n[incoming.b]\ngroup_id = "g"\n'
    path = write(tmp_path, "my.toml", text)
    (line,) = _refused(path, "a", "b")
    place = (
        f"{path}, line 3: [incoming.a] spark.mode = 'ranges': it needs Spark's Kafka connector: "
    )
    assert line.startswith(f"{place}{tmp_path}/cache/spark-connector-")
    assert 'run "reactive-kafka spark jars --to DIR"' in line


def _refused(path: Path, *channels: str) -> tuple[str, ...]:
    """What is wrong with an application whose *channels* run on Spark."""
    app = App(path)
    for channel in channels or ("a",):
        app.spark(channel)(lambda df, batch: None)
    with pytest.raises(ConfigError) as caught:
        app.configure()
    return tuple(caught.value.problems)


def test_remote_and_master_exclude_each_other_in_one_place() -> None:
    line = only_problem(incoming() | {"spark": {"master": "local[2]", "remote": "sc://h"}})
    assert line == (
        "code: [spark] remote = 'sc://h': remote (a Spark Connect server) and master (a session of the application) "
        "exclude each other; keep one"
    )


def test_the_higher_layer_decides_between_remote_and_master(tmp_path: Path) -> None:
    master = write(
        tmp_path, "a.toml", '[spark]\nmaster = "spark://h:7077"\n[incoming.a]\ngroup_id = "g"\n'
    )
    environ = {"REACTIVE_KAFKA__SPARK__REMOTE": "sc://other:15002"}
    assert loaded(master, environ).spark == SparkSettings(remote="sc://other:15002")
    remote = write(tmp_path, "b.toml", '[spark]\nremote = "sc://h"\n[incoming.a]\ngroup_id = "g"\n')
    assert loaded(remote, overrides={"spark": {"master": "local[1]"}}).spark == SparkSettings(
        master="local[1]"
    )


def test_a_dump_of_a_connect_server_can_be_read_back() -> None:
    settings = loaded(
        incoming(spark={"pool": "p", "max_concurrent_jobs": 2}) | {"spark": {"remote": "sc://h"}}
    )
    assert loaded(dump(settings)).spark == settings.spark
    assert dump(settings)["incoming"]["orders"]["spark"] == {"pool": "p", "max_concurrent_jobs": 2}


def test_ranges_and_the_commits_of_the_client_exclude_each_other() -> None:
    line = only_problem(incoming(enable_auto_commit=True, spark={"mode": "ranges"}))
    assert (
        'enable_auto_commit = true: with spark.mode = "ranges" executors read the records' in line
    )


@pytest.mark.parametrize("spark", [{}, {"batch_max_records": 5}])
def test_ordering_by_key_and_a_spark_table_exclude_each_other(spark: dict[str, Any]) -> None:
    said = 'ordering = "key" orders single records, and a spark table cuts them into batches (channel incoming.orders)'
    assert (
        only_problem(incoming(ordering="key", spark=spark))
        == f"code: [incoming.orders] ordering = 'key': {said}"
    )
    assert only_problem({"kafka": {"ordering": "key"}} | incoming(spark=spark)).endswith(said)


@pytest.mark.parametrize(
    "tables",
    [incoming(spark={}), incoming(), {"kafka": {"spark": {"pool": "p"}}} | incoming()],
    ids=repr,
)
def test_a_spark_function_on_a_channel_by_key_is_one_problem_whether_it_has_a_table_or_not(
    tables: dict[str, Any],
) -> None:
    tables["incoming"]["orders"]["ordering"] = "key"
    app = App(tables)

    @app.spark("orders")
    def count(df: Any, batch: Any) -> None: ...

    with pytest.raises(ConfigError) as caught:
        app.configure()
    (line,) = caught.value.problems
    assert "orders single records" in line


def test_a_channel_has_room_for_two_batches_of_each_concurrent_job() -> None:
    app = App(incoming(spark={"batch_max_records": 1000, "max_concurrent_jobs": 3}))

    @app.spark("orders")
    def count(df: Any, batch: Any) -> None: ...

    assert app.plan.incoming["orders"].settings.max_in_flight == 6000


def test_variables_reach_every_key_of_spark() -> None:
    tables = incoming(spark={}) | {"spark": {"conf": {"spark.sql.shuffle.partitions": 4}}}
    environ = {
        "REACTIVE_KAFKA__SPARK__JARS": "/jars",
        "REACTIVE_KAFKA__SPARK__MASTER": "spark://h:7077",
        "REACTIVE_KAFKA__SPARK__CONF__SPARK_SQL_SHUFFLE_PARTITIONS": "8",
        "REACTIVE_KAFKA__INCOMING__ORDERS__SPARK__MODE": "ranges",
        "REACTIVE_KAFKA__INCOMING__ORDERS__SPARK__MAX_CONCURRENT_JOBS": "3",
        "REACTIVE_KAFKA__INCOMING__ORDERS__SPARK__POOL": "7",
        "REACTIVE_KAFKA__INCOMING__ORDERS__SPARK__ON_FAILURE": "bisect",
    }
    settings = loaded(tables, environ)
    assert settings.spark == SparkSettings(
        master="spark://h:7077", jars="/jars", conf={"spark.sql.shuffle.partitions": 8}
    )
    assert settings.incoming["orders"].spark == SparkChannelSettings(
        mode="ranges", max_concurrent_jobs=3, pool="7", on_failure="bisect"
    )


def test_each_wrong_key_of_a_spark_table_is_a_line() -> None:
    lines = problems(incoming(spark={"mode": "x", "pool": "", "max_concurrent_jobs": -1}))
    assert len(lines) == 3
