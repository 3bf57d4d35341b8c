"""Protobuf files of tests, and the classes that protoc generates from them."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import tempfile
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import grpc_tools
from grpc_tools import protoc
from pydantic import BaseModel

LINE = """syntax = "proto3";
package shop;
message Line { string sku = 1; int32 count = 2; }
"""
ORDER = """syntax = "proto3";
package shop;
import "shop_line.proto";
import "google/protobuf/timestamp.proto";
message Envelope { string what = 1; }
message Order {
  enum State { NEW = 0; PAID = 1; }
  message Total { int64 cents = 1; string currency = 2; }
  int64 id = 1;
  repeated Line lines = 2;
  optional string note = 3;
  State state = 4;
  google.protobuf.Timestamp at = 5;
  map<string, int32> counts = 6;
  bytes raw = 7;
  Total total = 8;
}
"""


def write(folder: Path) -> Path:
    """Both files, in a folder; the path of the second one."""
    (folder / "shop_line.proto").write_text(LINE)
    (folder / "shop_order.proto").write_text(ORDER)
    return folder / "shop_order.proto"


@cache
def generated() -> Any:
    """The module of the second file; it is made once, because a process can register a file
    once.
    """
    folder = Path(tempfile.mkdtemp(prefix="reactive-kafka-protos-"))
    write(folder)
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    for name in ("shop_line.proto", "shop_order.proto"):
        assert not protoc.main(
            ["protoc", f"-I{folder}", f"-I{well_known}", f"--python_out={folder}", name]
        )
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("shop_order_pb2")
    finally:
        sys.path.remove(str(folder))


# -- models of the messages


class Line(BaseModel):
    sku: str
    count: int


class Order(BaseModel):
    id: int
    lines: list[Line] = []
    note: str | None = None
    state: str = "NEW"
    at: datetime | None = None
    raw: bytes = b""


@dataclasses.dataclass
class OrderData:
    id: int
    state: str = "NEW"
