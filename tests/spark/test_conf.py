import re
from typing import Any

import pytest

from reactive_kafka.spark.session.conf import (
    driver_environment,
    local_cores,
    masters_in,
    properties_text,
    secret_names,
    session_conf,
)
from tests.config.values import secret_of, spark_settings

LOCAL = spark_settings(master="local[2]")
CLUSTER = spark_settings(master="spark://spark.example:7077")


def environment_for(settings: Any, environ: dict[str, str]) -> dict[str, str]:
    return driver_environment(
        settings, environ, java_home="/java", python="/venv/python", path="/app:/venv"
    )


def test_what_the_user_set_wins_over_our_defaults() -> None:
    conf = session_conf(
        spark_settings(conf={"spark.scheduler.mode": "FIFO", "spark.ui.enabled": True}), 8
    )
    assert conf["spark.scheduler.mode"] == "FIFO"
    # As Spark spells it.
    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.sql.session.timeZone"] == "UTC"


def test_numbers_are_given_to_spark_as_text() -> None:
    assert (
        session_conf(spark_settings(conf={"spark.sql.shuffle.partitions": 4}), 8)[
            "spark.sql.shuffle.partitions"
        ]
        == "4"
    )


def test_a_local_session_listens_on_loopback_only() -> None:
    conf = session_conf(LOCAL, 8)
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert environment_for(LOCAL, {})["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_a_cluster_elsewhere_can_reach_the_driver() -> None:
    conf = session_conf(CLUSTER, 8)
    assert conf["spark.master"] == "spark://spark.example:7077"
    assert "spark.driver.host" not in conf
    assert "SPARK_LOCAL_IP" not in environment_for(CLUSTER, {})


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[*]", 8), ("local[4,2]", 4), ("local[*,2]", 8)],
)
def test_shuffles_have_as_many_partitions_as_the_session_has_cores(master: str, cores: int) -> None:
    assert local_cores(master, 8) == cores
    assert session_conf(spark_settings(master=master), 8)["spark.sql.shuffle.partitions"] == str(
        cores
    )


@pytest.mark.parametrize(
    ("master", "hosts"),
    [
        ("spark://a:7077", [("a", 7077)]),
        ("spark://a:7077,10.0.0.2:7078", [("a", 7077), ("10.0.0.2", 7078)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
        ("spark://a", []),
        ("local[2]", []),
        ("k8s://https://a:443", []),
        ("yarn", []),
    ],
)
def test_the_masters_of_a_standalone_cluster_are_read_out_of_its_url(
    master: str, hosts: list[tuple[str, int]]
) -> None:
    assert masters_in(master) == hosts


def test_python_workers_are_this_interpreter_and_find_the_same_modules() -> None:
    assert environment_for(LOCAL, {}) == {
        "JAVA_HOME": "/java",
        "PYSPARK_PYTHON": "/venv/python",
        "PYTHONPATH": "/app:/venv",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def test_what_the_environment_says_stays_but_for_the_java_that_was_chosen() -> None:
    environ = {"PYSPARK_PYTHON": "python3.12", "SPARK_LOCAL_IP": "10.0.0.1", "JAVA_HOME": "/old"}
    assert environment_for(LOCAL, environ) == {"JAVA_HOME": "/java"}


def test_executors_keep_no_kafka_consumer_for_long_unless_the_user_says_so() -> None:
    name = "spark.kafka.consumer.fetchedData.cache.timeout"
    assert session_conf(LOCAL, 8, jars=["/connector.jar"])[name] == "5s"
    own = spark_settings(master="local[2]", conf={name: "1m"})
    assert session_conf(own, 8, jars=["/connector.jar"])[name] == "1m"
    assert name not in session_conf(LOCAL, 8)


def test_the_connectors_jars_come_beside_the_users_own() -> None:
    jars = ["/jars/connector.jar", "/jars/clients.jar"]
    assert (
        session_conf(LOCAL, 8, jars=jars)["spark.jars"] == "/jars/connector.jar,/jars/clients.jar"
    )
    own = spark_settings(master="local[2]", conf={"spark.jars": "/own.jar"})
    assert (
        session_conf(own, 8, jars=jars)["spark.jars"]
        == "/own.jar,/jars/connector.jar,/jars/clients.jar"
    )
    assert "spark.jars" not in session_conf(LOCAL, 8)


def test_executors_of_a_cluster_on_this_machine_find_the_same_modules() -> None:
    here = spark_settings(master="spark://127.0.0.1:7077")
    assert session_conf(here, 8, path="/app:/venv")["spark.executorEnv.PYTHONPATH"] == "/app:/venv"
    assert "spark.executorEnv.PYTHONPATH" not in session_conf(CLUSTER, 8, path="/app")
    assert environment_for(here, {})["PYSPARK_PYTHON"] == "/venv/python"


def test_on_other_machines_python_is_not_at_the_same_place_unless_the_user_says_where() -> None:
    assert "PYSPARK_PYTHON" not in environment_for(CLUSTER, {})
    told = spark_settings(master=CLUSTER.master, conf={"spark.pyspark.python": "/opt/python3.11"})
    assert environment_for(told, {})["PYSPARK_PYTHON"] == "/opt/python3.11"


def test_spark_is_given_the_text_of_a_secret_and_the_names_to_hide() -> None:
    """Row S3 of the faults."""
    given = spark_settings(
        conf={
            "spark.a.password": secret_of("hunter2"),
            "spark.b.key": secret_of("4711"),
            "spark.c": "x",
        }
    )
    conf = session_conf(given, 8)
    assert (conf["spark.a.password"], conf["spark.b.key"]) == ("hunter2", "4711")
    assert secret_names(given) == ["spark.a.password", "spark.b.key"]
    hidden = re.compile(
        re.sub(r"\\Q(.*?)\\E", lambda quoted: re.escape(quoted[1]), conf["spark.redaction.regex"])
    )
    for name in (
        "spark.a.PASSWORD",
        "spark.b.key",
        "kafka.ssl.keystore.key",
        "kafka.sasl.jaas.config",
        "x.access.key",
    ):
        assert hidden.search(name)
    assert not hidden.search("spark.c")
    assert (
        session_conf(spark_settings(conf={"spark.redaction.regex": "mine"}), 8)[
            "spark.redaction.regex"
        ]
        == "mine"
    )


def test_a_master_with_a_password_is_a_secret() -> None:
    given = spark_settings(master=secret_of("spark://u:hunter2@host:7077"))
    assert secret_names(given) == ["spark.master"]
    assert session_conf(given, 8)["spark.master"] == "spark://u:hunter2@host:7077"


def test_properties_are_written_as_java_reads_them() -> None:
    assert properties_text({"a b:c": " x\\y\nz = #ü "}) == "a\\ b\\:c=\\ x\\\\y\\nz\\ =\\ #ü\\ \n"
