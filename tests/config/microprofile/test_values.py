"""Which value a property has: profiles, the environment, expressions."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.config.microprofile.expressions import CannotExpand, parsed
from reactive_kafka.config.microprofile.properties_syntax import entries
from reactive_kafka.config.microprofile.property_values import PropertySource, Values, profiles_of
from tests.config import loading

Environ = dict[str, str]


def values(text: str, environ: Environ | None = None) -> Values:
    sources = [PropertySource("f", entries(text))]
    return Values(sources, environ or {}, profiles_of(environ or {}, sources), "0815")


def value(text: str, name: str = "a", environ: Environ | None = None) -> str | None:
    given = values(text, environ).find(name)
    assert given is None or given.problem is None, given
    return None if given is None else given.text


def problem(text: str, name: str = "a", environ: Environ | None = None) -> str:
    given = values(text, environ).find(name)
    assert given is not None and given.problem is not None
    return given.problem


@pytest.mark.parametrize(
    ("text", "environ", "found"),
    [
        ("a=1\n%prod.a=2", {}, "2"),
        ("%prod.a=2\na=1", {}, "2"),
        ("a=1\n%dev.a=2", {}, "1"),
        ("a=1\n%dev.a=2", {"REACTIVE_KAFKA_PROFILE": "dev"}, "2"),
        ("a=1\n%dev.a=2", {"QUARKUS_PROFILE": "dev"}, "2"),
        (
            "a=1\n%dev.a=2\n%prod.a=3",
            {"QUARKUS_PROFILE": "dev", "REACTIVE_KAFKA_PROFILE": "prod"},
            "3",
        ),
        ("quarkus.profile=dev\na=1\n%dev.a=2", {}, "2"),
        ("%{dev,test}.a=2", {"REACTIVE_KAFKA_PROFILE": "test"}, "2"),
        ("%x.a=1\n%y.a=2", {"REACTIVE_KAFKA_PROFILE": "y, x"}, "1"),
        ("%prod.a=1\n%prod.a=2", {}, "2"),
        ("a=1\n%prod.a=", {}, None),
        ("a=1", {"A": "2"}, "2"),
        ("%prod.a=1", {"A": "2"}, "2"),
        ("a=1", {"A": "2", "_PROD_A": "3"}, "3"),
        ("a=1", {"A": ""}, None),
    ],
)
def test_profiles_and_the_environment_decide_which_value_there_is(
    text: str, environ: Environ, found: str | None
) -> None:
    assert value(text, environ=environ) == found


def test_a_variable_has_the_name_in_capitals_with_underscores() -> None:
    name = 'mp.messaging.incoming."my.orders".commit-strategy'
    assert value("", name, {"MP_MESSAGING_INCOMING__MY_ORDERS__COMMIT_STRATEGY": "x"}) == "x"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=${b}\nb=1", "1"),
        ("a=x${b}y${c}z\nb=1\nc=2", "x1y2z"),
        ("a=${b:localhost:9092}", "localhost:9092"),
        ("a=${b:}x", "x"),
        ("a=${b:1}\nb=", "1"),
        ("a=${b:${c:3}}", "3"),
        ("a=${b:${c}}\nb=1", "1"),
        ("a=${${c}.d}\nc=b\nb.d=4", "4"),
        ("a=${b}\nb=${c}\nc=5", "5"),
        ("a=$b $", "$b $"),
        ("a=$${b}", "${b}"),
        (r"a=\\${b}", "${b}"),
        ("a={x}: }", "{x}: }"),
        ("a=${b:{x}}", "{x}"),
        ("a=${quarkus.uuid}", "0815"),
        ("a=${b}\nb=1\n%prod.b=2", "2"),
    ],
)
def test_expressions_stand_for_other_properties(text: str, found: str) -> None:
    assert value(text) == found


def test_the_value_of_a_variable_has_expressions_too_as_smallrye_has_it() -> None:
    assert value("a=${HOST:x}:${PORT:9092}", environ={"HOST": "${PORT}", "PORT": "1"}) == "1:1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a=${b}", "${b} is not set and has no default"),
        ("a=${b}\nb=${c}", "${c} is not set"),
        ("a=${b", "a ${ is not closed"),
        ("a=${b:${c}", "a ${ is not closed"),
        ("a=${b}\nb=${a}", "stands for itself"),
        ("a=${a}", "stands for itself"),
        ("a=${handler::secret}", "secret handler"),
        ("a=" + "${a:" * 40 + "}" * 40, "too deeply"),
        ("a=${b0}\n" + "\n".join(f"b{at}=${{b{at + 1}}}" for at in range(50)), "too deeply"),
    ],
)
def test_an_expression_without_a_value_says_which(text: str, said: str) -> None:
    assert said in problem(text)


def test_a_name_that_is_made_of_a_value_is_not_shown() -> None:
    assert "hunter2" not in problem("a=${x.${password}}\npassword=hunter2")


def test_values_that_double_at_each_level_are_refused_soon() -> None:
    levels = "\n".join(f"b{at}=${{b{at + 1}}}${{b{at + 1}}}" for at in range(30))
    began = time.process_time()
    assert "more than 65536 characters" in problem(f"a=${{b0}}\n{levels}\nb30=x")
    assert value(f"a=x${{b0:}}\n{levels}\nb30=y", environ={"B0": "z"}) == "xz"
    assert "b30" in problem(f"a=x${{b0:}}\n{levels}")
    assert time.process_time() - began < 5


@given(st.text(alphabet="XY${}:\\ ", max_size=30))
def test_any_text_is_a_value_or_a_problem(text: str) -> None:
    try:
        parsed(text)
    except CannotExpand as error:
        # It may be a secret.
        assert not {"X", "Y"} & set(str(error))


@given(st.text().filter(lambda text: "$" not in text and text))
def test_a_text_without_expressions_is_itself(text: str) -> None:
    assert "".join(map(str, parsed(text))) == text


def test_a_file_of_a_profile_beside_it_wins(tmp_path: Path) -> None:
    channel = "mp.messaging.incoming.orders."
    main = loading.write(
        tmp_path, "application.properties", f"{channel}group.id=a\n%prod.{channel}topic=t"
    )
    loading.write(tmp_path, "application-prod.properties", f"{channel}topic=u\n{channel}group.id=b")
    loading.write(tmp_path, "application-dev.properties", f"{channel}topic=v")
    orders = loading.loaded(main).incoming["orders"]
    assert (orders.topics, orders.group_id) == (("u",), "b")
    orders = loading.loaded(main, {"REACTIVE_KAFKA_PROFILE": "dev"}).incoming["orders"]
    assert (orders.topics, orders.group_id) == (("v",), "a")
    assert (
        loading.loaded(main, {"REACTIVE_KAFKA_PROFILE": "../dev"}).incoming["orders"].group_id
        == "a"
    )


def test_a_problem_in_the_file_of_a_profile_names_that_file(tmp_path: Path) -> None:
    main = loading.write(
        tmp_path, "application.properties", "mp.messaging.incoming.orders.group.id=a"
    )
    beside = loading.write(
        tmp_path, "application-prod.properties", "\nmp.messaging.incoming.orders.ordered=keys"
    )
    assert loading.only_problem(main).startswith(
        f"{beside}, line 2: mp.messaging.incoming.orders.ordered = 'keys'"
    )
