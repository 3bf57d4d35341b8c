from __future__ import annotations

import json
import tomllib
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.config.lines import json_lines, line_of, toml_lines, yaml_lines

TOML = '''\
# [not.a.table]
[kafka] # comment = 1
bootstrap_servers = [
  "a = 1", # x = 2
  ["b"], { c = 1 },
  """[x]
  y = 3 """,
]
session.timeout.ms = 1
"client.id" = """one " quote""""

[incoming."my.orders"]
'group id' = 'a'
retry = { max_attempts = 3 }
  [ incoming . clicks ]
  topic = "t"'''


def test_every_key_and_table_of_a_toml_file_is_found() -> None:
    tomllib.loads(TOML)
    lines = toml_lines(TOML)
    assert {path: at[0] for path, at in lines.items()} == {
        ("kafka",): 2,
        ("kafka", "bootstrap_servers"): 3,
        ("kafka", "session", "timeout", "ms"): 9,
        ("kafka", "client.id"): 10,
        ("incoming", "my.orders"): 12,
        ("incoming", "my.orders", "group id"): 13,
        ("incoming", "my.orders", "retry"): 14,
        ("incoming", "clicks"): 15,
        ("incoming", "clicks", "topic"): 16,
    }
    assert line_of(lines, ("incoming", "my.orders", "retry", "max_attempts")) == 14
    assert line_of(lines, ("nothing",)) is None


def test_every_key_of_a_json_file_is_found_and_a_second_one_is_seen() -> None:
    text = '{\n "a": {"b": [1, {"no": 2}],\n "c\\n": {}},\n "d": "a: {",\n "d": 2\n}'
    assert json_lines(text) == {("a",): [2], ("a", "b"): [2], ("a", "c\n"): [3], ("d",): [4, 5]}


def test_every_key_of_a_yaml_file_is_found_and_a_second_one_is_seen() -> None:
    text = "a:\n  b: [1]\n  'c.d': {e: 1}\n# x\nf: |\n  g: 1\nf: 2\n"
    assert yaml_lines(yaml.compose(text, Loader=yaml.SafeLoader)) == {
        ("a",): [1],
        ("a", "b"): [2],
        ("a", "c.d"): [3],
        ("a", "c.d", "e"): [3],
        ("f",): [5, 7],
    }


def test_a_yaml_alias_to_what_holds_it_ends() -> None:
    lines = yaml_lines(yaml.compose("a: &a\n  b: *a\n", Loader=yaml.SafeLoader))
    assert lines[("a", "b")] == [2]


trees = st.recursive(
    st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def _paths(tree: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if not isinstance(tree, dict):
        return set()
    return {(*path, key) for key in tree}.union(*(_paths(value, (*path, key)) for key, value in tree.items()))


@given(st.dictionaries(st.text(), trees, max_size=4))
def test_exactly_the_keys_of_any_json_are_found_each_once(tree: dict[str, Any]) -> None:
    lines = json_lines(json.dumps(tree, indent=1))
    assert lines.keys() == _paths(tree)
    assert all(len(at) == 1 for at in lines.values())
