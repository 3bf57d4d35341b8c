"""Which name was probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def near_names(
    word: str, known: Iterable[str], most: int = 1, *, likeness: float = 0.6
) -> list[str]:
    """Return the *most* names that are most like *word*, the nearest first.

    Args:
        likeness: Of 0 to 1, how much a name has to be like it.
    """
    # Here, because only mistakes need it.
    from difflib import get_close_matches

    return get_close_matches(word, list(known), most, likeness)
