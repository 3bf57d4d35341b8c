"""Before Python 3.12 pydantic rejects TypedDicts of ``typing``: they are replaced by those of typing_extensions."""

from __future__ import annotations

import sys
import typing
from typing import Any

import typing_extensions  # pydantic depends on it


def with_portable_typed_dicts(annotation: Any) -> Any:
    """*annotation* with its TypedDicts replaced; the same object if there is nothing to replace."""
    if sys.version_info >= (3, 12):
        return annotation
    return _replaced(annotation, {})


def _replaced(annotation: Any, made: dict[Any, Any]) -> Any:
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _remade(annotation, made)
    arguments = typing.get_args(annotation)
    new = tuple(_replaced(argument, made) for argument in arguments)
    if all(after is before for after, before in zip(new, arguments, strict=True)):
        return annotation
    if typing.get_origin(annotation) is typing.Annotated:
        return typing.Annotated[new[0], *annotation.__metadata__]
    if hasattr(annotation, "copy_with"):  # typing.List[...], Optional[...]
        return annotation.copy_with(new)
    origin = typing.get_origin(annotation)
    return typing.Union[new] if origin is _UNION_TYPE else origin[new]  # noqa: UP007


_UNION_TYPE = type(int | str)
_QUALIFIERS: dict[Any, bool] = {
    typing.Required: True,
    typing.NotRequired: False,
    typing_extensions.Required: True,
    typing_extensions.NotRequired: False,
}


def _remade(typed_dict: Any, made: dict[Any, Any]) -> Any:
    if typed_dict in made:
        return made[typed_dict]
    made[typed_dict] = typed_dict  # a recursive one keeps its inner self, which pydantic reports
    hints = typing.get_type_hints(typed_dict, include_extras=True)
    fields = {name: _field(hint, name in typed_dict.__required_keys__, made) for name, hint in hints.items()}
    functional: Any = typing_extensions.TypedDict
    made[typed_dict] = functional(typed_dict.__name__, fields)
    made[typed_dict].__module__, made[typed_dict].__doc__ = typed_dict.__module__, typed_dict.__doc__
    return made[typed_dict]


def _field(hint: Any, required: bool, made: dict[Any, Any]) -> Any:
    said = typing.get_origin(hint)
    if said in _QUALIFIERS:  # __required_keys__ misses qualifiers in string annotations
        required, hint = _QUALIFIERS[said], typing.get_args(hint)[0]
    inner = _replaced(hint, made)
    return typing_extensions.Required[inner] if required else typing_extensions.NotRequired[inner]
