"""``asyncapi`` prints a document that AsyncAPI's own schema takes, with what the application reads
and writes in it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft7Validator

from reactive_kafka.cli.commands import commands
from tests.cli.process import Ended, cli
from tests.pages import ROOT

Document = dict[str, Any]
Print = Callable[..., Document]


@cache
def official() -> Draft7Validator:
    """The schema of AsyncAPI 3.0 documents."""
    schema = json.loads((ROOT / "tests" / "specs" / "asyncapi-3.0.0.json").read_text())
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


def check_document(document: Document) -> None:
    """It fits the official schema, and each of its references leads to something in it."""
    assert [
        (error.json_path, error.message[:200]) for error in official().iter_errors(document)
    ] == []
    for reference in re.findall(r'"\$ref": "([^"]+)"', json.dumps(document)):
        assert at(document, reference) is not None


def at(document: Document, reference: str) -> Any:
    """What a reference leads to."""
    found: Any = document
    assert reference.startswith("#/")
    for part in reference[2:].split("/"):
        found = found[part]
    return found


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ended]]:
    """Runs the command in a folder, inside this process; the modules that it loads there are
    forgotten.
    """
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = set(sys.modules)

    def called(folder: Path, target: str, *options: str) -> Ended:
        monkeypatch.chdir(folder)
        done = CliRunner().invoke(commands, ["asyncapi", target, *options])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ended(done.exit_code, done.stdout, done.stderr)

    yield called
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(
            (str(ROOT / "examples"), "/tmp")
        ):
            del sys.modules[name]


@pytest.fixture
def printed(run: Callable[..., Ended], tmp_path: Path) -> Print:
    """The checked document of a module ``shop`` and a configuration."""

    def called(source: str, config: str, *options: str) -> Document:
        (tmp_path / "shop.py").write_text(source)
        (tmp_path / "reactive-kafka.toml").write_text(config)
        ended = run(tmp_path, "shop:app", *options)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.isascii()
        document: Document = json.loads(ended.out)
        check_document(document)
        return document

    return called


HELLO = '''\
"""Says hello.

To everybody.
"""
from reactive_kafka import App

app = App()

@app.incoming("greetings")
async def greet(name: str) -> None:
    """Greet somebody."""
'''


SEVERAL = """\
from typing import Literal
from pydantic import BaseModel
from reactive_kafka import App

app = App()

class Placed(BaseModel):
    type: Literal["placed"]

class Cancelled(BaseModel):
    type: Literal["cancelled"]

@app.incoming("events")
@app.outgoing("invoices")
async def placed(event: Placed) -> int:
    return 1

@app.incoming("events")
async def cancelled(event: Cancelled) -> None: ...
"""


def test_the_messages_of_several_handlers_are_those_of_one_operation(printed: Print) -> None:
    config = '[incoming.events]\ngroup_id = "g"\nfailure_strategy = "delayed-retry-topic"\n[outgoing.invoices]\n'
    document = printed(SEVERAL, config)
    operation = document["operations"]["receive-events"]
    assert [one["$ref"] for one in operation["messages"]] == [
        "#/channels/events/messages/Placed",
        "#/channels/events/messages/Cancelled",
    ]
    assert operation["summary"] == "shop.placed, shop.cancelled"
    assert document["operations"]["send-invoices"]["summary"] == "shop.placed"
    assert (
        len(document["operations"]["receive-retries-of-events-events_retry_10000"]["messages"]) == 2
    )


def test_a_small_application_is_one_channel_and_one_operation(printed: Print) -> None:
    document = printed(HELLO, '[incoming.greetings]\ngroup_id = "hello"\n')
    assert document == {
        "asyncapi": "3.0.0",
        "info": {
            "title": "shop:app",
            "version": "0.0.0",
            "description": "Says hello.\n\nTo everybody.",
        },
        "defaultContentType": "application/json",
        "servers": {"localhost-9092": {"host": "localhost:9092", "protocol": "kafka"}},
        "channels": {
            "greetings": {
                "address": "greetings",
                "bindings": {"kafka": {"topic": "greetings", "bindingVersion": "0.5.0"}},
                "servers": [{"$ref": "#/servers/localhost-9092"}],
                "messages": {
                    "str": {
                        "name": "str",
                        "title": "str",
                        "contentType": "text/plain",
                        "payload": {"type": "string"},
                    }
                },
            }
        },
        "operations": {
            "receive-greetings": {
                "action": "receive",
                "summary": "shop.greet",
                "description": "Greet somebody.",
                "bindings": {
                    "kafka": {
                        "groupId": {"type": "string", "enum": ["hello"]},
                        "bindingVersion": "0.5.0",
                    },
                },
                "channel": {"$ref": "#/channels/greetings"},
                "messages": [{"$ref": "#/channels/greetings/messages/str"}],
            }
        },
        "components": {"schemas": {}},
    }


SHOP = '''\
from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import msgspec
from pydantic import BaseModel, Field

from reactive_kafka import App, Batch, Message, Record

app = App()

class Line(BaseModel):
    article: str
    count: int = Field(gt=0)

class Order(BaseModel):
    """What somebody wants."""
    id: int = Field(alias="orderId")
    lines: list[Line] = []
    place: tuple[float, float] | None = None

@dataclass
class Invoice:
    order: int
    amount: float

class Click(TypedDict, total=False):
    page: str

class Card(msgspec.Struct, tag="card"):
    number: str

class Cash(msgspec.Struct, tag="cash"):
    amount: int

class Cat(BaseModel):
    kind: Literal["cat"]

class Dog(BaseModel):
    kind: Literal["dog"]

Pet = Annotated[Cat | Dog, Field(discriminator="kind")]

@app.incoming("orders")
@app.outgoing("invoices")
async def bill(message: Message[Order]) -> Invoice | None: ...

@app.incoming("clicks")
def count(clicks: Batch[Click]) -> None: ...

@app.incoming("payments")
@app.outgoing("stage")
async def pay(payment: Card | Cash) -> AsyncIterator[Order]:
    yield Order(orderId=1)

@app.incoming("stage")
@app.outgoing("audit")
async def staged(order: Order) -> list[Record]: ...

@app.outgoing("prices")
@app.outgoing("audit")
async def prices() -> AsyncIterator[float]:
    yield 1.0

@app.incoming("pets")
async def pets(pet: Pet) -> None: ...

@app.incoming("anything")
async def anything(value) -> None: ...

@app.incoming("pictures")
async def pictures(picture: bytes | None) -> None: ...

@app.incoming("numbers")
async def numbers(number: int) -> None: ...

app.emitter("mails")
'''
LARGE = """\
[kafka]
bootstrap_servers = "a:9092,b:9092"
group_id = "shop"
security_protocol = "SASL_SSL"
sasl_mechanism = "SCRAM-SHA-512"
sasl_plain_username = "ada"
sasl_plain_password = "hunter2"

[incoming.orders]
topics = ["orders-eu", "orders-us"]
failure_strategy = "delayed-retry-topic"
key_deserializer = "int"
client.id = "billing"
[incoming.orders.delayed_retry]
topics = ["again_1000", "again_5000"]

[incoming.clicks]
pattern = "clicks/.*|views"
[incoming.clicks.dead_letter_queue]
bootstrap_servers = "letters:1"
security_protocol = "PLAINTEXT"
topic = "letters"
[incoming.clicks.failure_routes]
ValueError = "dead-letter-queue"

[incoming.payments]
assign = ["payments:0", "payments:1:-1"]
commit_strategy = "ignore"
[incoming.pets]
[incoming.anything]
[incoming.pictures]
[incoming.numbers]
value_deserializer = "int32"
[incoming.idle]

[outgoing.invoices]
propagate_headers = ["trace"]
key_serializer = "string"
[outgoing.audit]
topic = "orders-eu"
[outgoing.prices]
value_serializer = "float32"
[outgoing.mails]
reply_topic = "mail-replies"

[memory.stage]
"""


@pytest.fixture
def large(printed: Print) -> Document:
    return printed(SHOP, LARGE)


def message_of(document: Document, operation: str) -> Any:
    """The one message of an operation."""
    (reference,) = document["operations"][operation]["messages"]
    return at(document, reference["$ref"])


def payload_of(document: Document, operation: str) -> Any:
    return message_of(document, operation).get("payload")


def test_each_channel_and_each_topic_is_received_from_or_sent_to(large: Document) -> None:
    sides = {
        name: (it["action"], it["channel"]["$ref"].rpartition("/")[2])
        for name, it in large["operations"].items()
    }
    received = {name for name, (action, _) in sides.items() if action == "receive"}
    assert {name: topic for name, (action, topic) in sides.items() if action == "send"} == {
        "send-invoices": "invoices",
        "send-audit": "orders-eu",
        "send-prices": "prices",
        "send-mails": "mails",
        "send-retries-of-orders-again_1000": "again_1000",
        "send-retries-of-orders-again_5000": "again_5000",
        "send-dead-letters-of-orders": "dead-letter-topic-orders",
        "send-dead-letters-of-clicks": "letters",
    }
    assert received == {
        *(
            "receive-orders-orders-eu",
            "receive-orders-orders-us",
            "receive-clicks",
            "receive-payments",
            "receive-pets",
        ),
        *("receive-anything", "receive-pictures", "receive-numbers", "receive-idle"),
        *(
            "receive-retries-of-orders-again_1000",
            "receive-retries-of-orders-again_5000",
            "receive-replies-to-mails",
        ),
    }
    assert "stage" not in large["channels"]


def test_a_topic_is_one_channel_whoever_reads_and_writes_it(large: Document) -> None:
    addresses = [
        channel["address"]
        for channel in large["channels"].values()
        if channel["address"] is not None
    ]
    assert len(addresses) == len(set(addresses))
    assert set(large["channels"]["orders-eu"]["messages"]) == {"Order", "audit", "float"}
    assert [it["$ref"] for it in large["operations"]["send-audit"]["messages"]] == [
        "#/channels/orders-eu/messages/audit",
        "#/channels/orders-eu/messages/float",
    ]


def test_types_are_schemas_whatever_they_are_written_with(large: Document) -> None:
    order = at(large, payload_of(large, "receive-orders-orders-us")["$ref"])
    assert (order["description"], order["required"]) == ("What somebody wants.", ["orderId"])
    assert payload_of(large, "send-invoices") == {"$ref": "#/components/schemas/Invoice"}
    assert large["components"]["schemas"]["Click"]["properties"]["page"]["type"] == "string"
    assert large["components"]["schemas"]["Line"]["properties"]["count"]["exclusiveMinimum"] == 0
    assert [each["$ref"] for each in payload_of(large, "receive-payments")["anyOf"]] == [
        "#/components/schemas/Card",
        "#/components/schemas/Cash",
    ]
    assert "discriminator" not in payload_of(large, "receive-pets")
    assert payload_of(large, "receive-numbers") == {"type": "integer", "format": "int32"}
    assert payload_of(large, "send-prices") == {"type": "number", "format": "float"}
    assert {"type": "string", "format": "binary"} in payload_of(large, "receive-pictures")["anyOf"]


def test_what_no_annotation_says_is_left_open(large: Document) -> None:
    for operation in (
        "receive-anything",
        "receive-idle",
        "send-mails",
        "send-dead-letters-of-orders",
    ):
        assert payload_of(large, operation) is None
    assert message_of(large, "receive-anything")["contentType"] == "application/json"
    assert "contentType" not in message_of(large, "send-mails")


def test_content_types_follow_from_the_formats(large: Document) -> None:
    found = {
        name: message_of(large, name)["contentType"]
        for name in ("receive-pictures", "receive-numbers")
    }
    assert set(found.values()) == {"application/octet-stream"}
    assert message_of(large, "send-invoices")["contentType"] == "application/json"


@pytest.mark.parametrize(
    ("format", "media"),
    [
        ("avro", "application/vnd.apache.avro"),
        ("protobuf", "application/vnd.google.protobuf"),
        ("json-schema", "application/json"),
        ("cloudevents", "application/cloudevents+json"),
    ],
)
def test_a_format_with_schemas_or_events_has_its_own_content_type(
    format: str, media: str, printed: Print
) -> None:
    config = f"""
        schema_registry.url = "memory://"
        [incoming.orders]
        group_id = "g"
        value_deserializer = "{format}"
        [outgoing.sent]
        value_serializer = "{format}"
    """
    source = """
from pydantic import BaseModel
from reactive_kafka import App
app = App()
class Order(BaseModel):
    id: int
@app.incoming("orders")
@app.outgoing("sent")
async def handle(order: Order) -> Order: ...
"""
    document = printed(source, config)
    for operation in ("receive-orders", "send-sent"):
        message = message_of(document, operation)
        assert message["contentType"] == media
        assert message["payload"] == {"$ref": "#/components/schemas/Order"}


def test_keys_and_headers_are_told_where_they_are_known(large: Document) -> None:
    order, invoice = (
        message_of(large, "receive-orders-orders-us"),
        message_of(large, "send-invoices"),
    )
    assert order["bindings"]["kafka"]["key"] == {"type": "integer", "format": "int64"}
    assert invoice["bindings"]["kafka"]["key"] == {"type": "string"}
    assert invoice["headers"] == {"type": "object", "properties": {"trace": {"type": "string"}}}
    assert "headers" not in order
    letter = message_of(large, "send-dead-letters-of-clicks")["headers"]
    assert {"dead-letter-reason", "deserialization-failure-reason"} < letter["properties"].keys()
    assert "dead-letter-topic" in letter["required"]
    again = message_of(large, "receive-retries-of-orders-again_5000")
    assert "delayed-retry-count" in again["headers"]["required"]
    assert again["payload"] == order["payload"]


def test_a_pattern_has_no_address(large: Document) -> None:
    channel = at(large, large["operations"]["receive-clicks"]["channel"]["$ref"])
    assert (channel["address"], channel["x-topic-pattern"]) == (None, "clicks/.*|views")


def test_groups_are_told_and_partitions_by_hand_have_none(large: Document) -> None:
    def group(operation: str) -> Any:
        return large["operations"][operation].get("bindings", {}).get("kafka", {}).get("groupId")

    assert group("receive-clicks") == {"type": "string", "enum": ["shop"]}
    assert group("receive-retries-of-orders-again_1000")["enum"] == [
        "kafka-delayed-retry-topic-shop"
    ]
    assert group("send-invoices") is None
    assert large["operations"]["receive-orders-orders-eu"]["bindings"]["kafka"]["clientId"][
        "enum"
    ] == ["billing"]


def test_servers_are_the_brokers_of_each_channel_and_say_nothing_of_credentials(
    large: Document,
) -> None:
    secure = {"protocol": "kafka-secure", "security": [{"type": "scramSha512"}]}
    assert large["servers"] == {
        "a-9092": {"host": "a:9092", **secure},
        "b-9092": {"host": "b:9092", **secure},
        "letters-1": {"host": "letters:1", "protocol": "kafka"},
    }
    assert large["channels"]["letters"]["servers"] == [{"$ref": "#/servers/letters-1"}]
    assert len(large["channels"]["invoices"]["servers"]) == 2
    assert re.findall("hunter2|ada", json.dumps(large)) == []


@pytest.mark.parametrize(
    ("settings", "server"),
    [
        (
            'security_protocol = "SASL_PLAINTEXT"\nsasl_username = "u"\nsasl_password = "p"',
            {"protocol": "kafka", "security": [{"type": "plain"}]},
        ),
        (
            'security_protocol = "SASL_SSL"\nsasl_mechanism = "GSSAPI"',
            {"security": [{"type": "gssapi"}]},
        ),
        ('security_protocol = "SSL"', {"protocol": "kafka-secure"}),
        ('security_protocol = "SSL"\nssl_certfile = "shop.py"', {"security": [{"type": "X509"}]}),
        ('bootstrap_servers = "embedded"', {"host": "localhost", "protocol": "kafka"}),
        ('bootstrap_servers = "[::1]:9092"', {"host": "[::1]:9092", "protocol": "kafka"}),
    ],
)
def test_each_kind_of_security_has_its_name(
    settings: str, server: dict[str, Any], printed: Print
) -> None:
    document = printed(HELLO, f'[kafka]\ngroup_id = "g"\n{settings}\n[incoming.greetings]\n')
    (found,) = document["servers"].values()
    assert server.items() <= found.items()


def test_a_reply_is_received_from_the_topic_that_is_named(large: Document) -> None:
    reply = large["operations"]["send-mails"]["reply"]["channel"]["$ref"]
    assert at(large, reply)["address"] == "mail-replies"
    assert message_of(large, "receive-replies-to-mails")["headers"]["required"] == [
        "REPLY_CORRELATION_ID"
    ]


TWINS = """\
from dataclasses import dataclass
import msgspec
from reactive_kafka import App
app = App()
class Order(msgspec.Struct):
    number: int
Struct = Order
@dataclass
class Order:
    id: int
@app.incoming("a.b/c")
async def one(order: Order) -> None: ...
@app.incoming("two")
async def two(order: Struct) -> None: ...
@app.incoming("three")
async def three(order: "Undescribable") -> None: ...
class Undescribable: ...
"""


def test_two_types_of_one_name_are_two_schemas_and_names_of_channels_are_made_ids(
    printed: Print,
) -> None:
    config = """
[kafka]
group_id = "g"
[incoming."a.b/c"]
topic = "same"
[incoming.two]
topic = "same"
[incoming.three]
value_deserializer = "shop:Undescribable"
"""
    document = printed(TWINS, config)
    one, two = (
        at(document, payload_of(document, f"receive-{name}")["$ref"]) for name in ("a.b-c", "two")
    )
    assert (set(one["properties"]), set(two["properties"])) == ({"id"}, {"number"})
    assert len(document["channels"]["same"]["messages"]) == 2
    assert payload_of(document, "receive-three") is None


SENT = """\
from typing import Annotated, AsyncIterator
from pydantic import BaseModel, Field
from reactive_kafka import App, Record
app = App()
class Order(BaseModel):
    number: int
First = Order
class Order(BaseModel):
    id: int
@app.incoming("orders")
@app.outgoing("{channel}")
async def one(order: bytes) -> {first}: ...
@app.outgoing("{channel}")
async def other() -> AsyncIterator[{second}]:
    yield 1
"""


@pytest.mark.parametrize(
    ("first", "second", "messages"),
    [
        ("First", "Order", {"Order": "json", "Order-2": "json"}),
        ("Order | None", "Order", {"Order": "json"}),
        ("Annotated[int, Field(ge=0)]", "str | None", {"int": "json", "str": "text"}),
        ("Order | str | None", "bytes", {"Order-str": "json", "bytes": "octet-stream"}),
        ("None", "Record", {"sent": None}),
        ("Record | None", "list[Record]", {"sent": None}),
        ("'Missing'", "list[Order]", {"Missing": "json", "list-Order": "json"}),
    ],
)
def test_what_is_sent_is_what_return_annotations_say(
    first: str, second: str, messages: dict[str, str | None], printed: Print
) -> None:
    config = '[incoming.orders]\ngroup_id = "g"\n[outgoing.sent]\n'
    document = printed(SENT.format(channel="sent", first=first, second=second), config)
    found = document["channels"]["sent"]["messages"]
    assert found.keys() == messages.keys()
    for name, kind in messages.items():
        assert (kind or "") in found[name].get("contentType", "")
        assert ("payload" in found[name]) == (kind is not None and name != "Missing")


# -- options and exits


def test_yaml_says_the_same(run: Callable[..., Ended], tmp_path: Path, large: Document) -> None:
    ended = run(tmp_path, "shop:app", "--yaml")
    assert yaml.safe_load(ended.out) == large
    assert "&id" not in ended.out


def test_without_pyyaml_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("import sys\nsys.modules['yaml'] = None\n" + HELLO)
    (tmp_path / "reactive-kafka.toml").write_text('[incoming.greetings]\ngroup_id = "hello"\n')
    ended = cli("asyncapi", "shop:app", "--yaml", cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "pip install '.[yaml]'" in ended.err


def test_title_and_version_may_be_given(printed: Print) -> None:
    config = '[incoming.greetings]\ngroup_id = "hello"\n'
    info = printed(HELLO, config, "--title", "Hello", "--api-version", "1.2.0")["info"]
    assert (info["title"], info["version"]) == ("Hello", "1.2.0")


def test_the_version_is_that_of_the_package_that_the_module_belongs_to(
    printed: Print, tmp_path: Path
) -> None:
    package = tmp_path / "my_shop-1.4.2.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: my-shop\nVersion: 1.4.2\n")
    (package / "top_level.txt").write_text("shop\n")
    assert (
        printed(HELLO, '[incoming.greetings]\ngroup_id = "hello"\n')["info"]["version"] == "1.4.2"
    )


@pytest.mark.parametrize(
    ("target", "config", "said"),
    [
        ("shop:ap", "[incoming.greetings]\ngroup_id = 'g'\n", "did you mean shop:app?"),
        ("shop", "", "expected module:attribute"),
        ("shop:app", "[incoming.greetings]\n", "group_id is missing"),
        (
            "shop:app",
            "[incoming.greeting]\ngroup_id = 'g'\n",
            "no [incoming.greetings] is configured",
        ),
    ],
)
def test_what_is_wrong_with_target_or_configuration_exits_with_2(
    target: str, config: str, said: str, run: Callable[..., Ended], tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(HELLO)
    (tmp_path / "reactive-kafka.toml").write_text(config)
    ended = run(tmp_path, target)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


# -- the examples

APPS = sorted(
    (path, name)
    for path in (ROOT / "examples").glob("*/*.py")
    for name in re.findall(r"^(\w+) = App\(", path.read_text(), re.MULTILINE)
)
ON_SPARK = ("clickstream",)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        pytest.param(path, name, marks=[pytest.mark.spark] if path.parent.name in ON_SPARK else [])
        for path, name in APPS
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.parent.name}/{value.stem}",
)
def test_the_document_of_each_example_is_valid(
    path: Path, name: str, run: Callable[..., Ended]
) -> None:
    ended = run(path.parent, f"{path.stem}:{name}")
    assert (ended.code, ended.err) == (0, "")
    document = json.loads(ended.out)
    check_document(document)
    # Which has no channels.
    assert document["operations"] or path.stem == "look"
