"""Arrays of one group that conventions cannot tell apart: what is said of one of them is said of all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from periplus.conventions.cf.links import ATTRIBUTES
from periplus.conventions.identity import CONVENTIONS, KEY
from periplus.conventions.meaning import External, Meaning
from periplus.conventions.multiscales.levels import level_of
from periplus.conventions.node import DIMENSIONS, Node
from periplus.conventions.reading import Reading

_SPEAKING = frozenset({KEY, *ATTRIBUTES, *(key for one in CONVENTIONS.values() for key in one.keys)})
_PLACES = ("spatial:", "proj:")
_IDLE = frozenset({"units", "long_name", "standard_name", "_FillValue", DIMENSIONS})
"""Attributes that most arrays have, and no convention asks for unless another attribute is there too."""


def likeness(reading: Reading) -> Any:
    """Equal for arrays of which the same is said, but for their paths; None where an array may be a case of its own.

    Names matter to whatever refers to arrays, so neither the array nor its group may hold any reference.
    """
    node, group = reading.node, reading.group
    if group is None or node.name in node.dims or not _without_references(reading, group):
        return None
    own = []
    for key, value in node.attributes.items():
        if key in _IDLE:
            continue
        if key in _SPEAKING or ":" in key or not isinstance(value, str | int | float):
            return None
        own.append((key, value))
    found = level_of(reading)
    level = None if found is None else (found[0].path, found[1].path)
    return ("alike", group.path, node.dims, node.shape, node.dtype, level, tuple(own))


def is_common(meaning: Meaning) -> bool:
    """Whether what is said of an array holds for others like it."""
    return not (
        meaning.links
        or meaning.quantization is not None
        or any(isinstance(coord.values, External) and coord.role != "axis" for coord in meaning.coords)
        or any(one.path == meaning.path for one in meaning.diagnostics)
    )


def said_of(meaning: Meaning, node: Node) -> Meaning:
    """What is said of an array like another."""
    return replace(meaning, path=node.path)


def _without_references(reading: Reading, group: Node) -> bool:
    """Whether a group says of its arrays only where they lie."""
    key = ("without references", group.path)
    if key not in reading.memo:
        reading.memo[key] = all(
            one in (KEY, "multiscales") or one.startswith(_PLACES) or not (one in _SPEAKING or ":" in one)
            for one in group.attributes
        )
    return bool(reading.memo[key])
