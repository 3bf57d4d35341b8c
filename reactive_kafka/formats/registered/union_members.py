"""The members of a union that a handler asks for: the name in a record's schema says which of them
the record is.

Their fields may be the same: a ``Placed`` that is read as ``Cancelled`` would be no error, and
wrong.
"""

from __future__ import annotations

import typing
from typing import Any

from reactive_kafka.formats.models import Model, model_for
from reactive_kafka.formats.payload_type import PayloadType, is_union, payload_type_of
from reactive_kafka.formats.registered.plain_data import is_model


def members_of(asked: PayloadType) -> list[Any]:
    """The types in a union that is written without further conditions; else the one type itself."""
    if is_union(asked.base) and not asked.is_constrained:
        return [payload_type_of(one).base for one in typing.get_args(asked.base)]
    return [asked.base]


def named_models(asked: PayloadType) -> dict[str, Model]:
    """Name of the class -> how it is read, of the models in a union. Two of one name are told apart
    by their fields.
    """
    members = members_of(asked)
    if len(members) == 1:
        return {}
    names = [one.__name__ for one in members if is_model(one)]
    return {
        one.__name__: model_for(payload_type_of(one))
        for one in members
        if is_model(one) and names.count(one.__name__) == 1
    }
