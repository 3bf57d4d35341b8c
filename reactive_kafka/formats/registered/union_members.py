"""Finds the member of a handler's union by the name in a record's schema.

The members may have the same fields. Without the name a ``Placed`` could be read as ``Cancelled``,
without an error.
"""

from __future__ import annotations

import typing
from typing import Any

from reactive_kafka.formats.models import Model, model_for
from reactive_kafka.formats.payload_type import PayloadType, is_union, payload_type_of
from reactive_kafka.formats.registered.plain_data import is_model


def members_of(payload_type: PayloadType) -> list[Any]:
    """Return the members of a union without further conditions, or else the type itself."""
    if is_union(payload_type.base) and not payload_type.is_constrained:
        return [payload_type_of(member).base for member in typing.get_args(payload_type.base)]
    return [payload_type.base]


def named_models(payload_type: PayloadType) -> dict[str, Model]:
    """Return class name -> how the class is read, for the models in a union.

    Models that share a name are left out: their fields decide.
    """
    members = members_of(payload_type)
    if len(members) == 1:
        return {}
    models = [member for member in members if is_model(member)]
    names = [model.__name__ for model in models]
    return {
        model.__name__: model_for(payload_type_of(model))
        for model in models
        if names.count(model.__name__) == 1
    }
