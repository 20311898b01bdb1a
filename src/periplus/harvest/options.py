"""Options of an arrangement: which there are, and which have an effect with which arrangement."""

from __future__ import annotations

from typing import Any

from periplus.arrange import KINDS
from periplus.arrange.mosaic.overlap import MOSAIC_DUPLICATES, MOSAIC_ORDERS
from periplus.arrange.stack.coordinate import COORDINATES, STACK_DUPLICATES
from periplus.arrange.times import check_pattern
from periplus.errors import FormatError


def check_options(
    kind: str,
    *,
    dim: Any,
    pattern: str | None,
    coordinate: str,
    duplicates: str,
    order: str,
    skip_misfits: bool,
    append: bool,
) -> None:
    """Raise for options that are none or have no effect, before anything is read.

    Where files are added to an index and no arrangement is given, that of the index decides, once it is known.
    """
    undecided = append and kind == "auto"
    rules: tuple[str, ...] = MOSAIC_DUPLICATES if kind == "mosaic" else STACK_DUPLICATES
    if undecided:
        rules = tuple(dict.fromkeys((*STACK_DUPLICATES, *MOSAIC_DUPLICATES)))
    for name, value, allowed in (
        ("arrange", kind, KINDS),
        ("coordinate", coordinate, COORDINATES),
        ("duplicates of a mosaic" if kind == "mosaic" else "duplicates", duplicates, rules),
        ("order", order, MOSAIC_ORDERS),
        ("skip_misfits", skip_misfits, (True, False)),
    ):
        if value not in allowed:
            raise FormatError(f"{name} is one of {', '.join(map(str, allowed))}, not {value!r}")
    if order != "given" and kind != "mosaic" and not undecided:
        raise FormatError(f"order= has no effect with arrange={kind!r}: it applies to arrange='mosaic'")
    stacks, plain = kind in ("stack", "auto"), kind == "collect"
    named = pattern is not None or append  # to an index that may have a pattern
    for name, given, applies, modes in (
        ("dim", dim is not None, stacks, "'stack'"),
        ("coordinate", coordinate != "auto", stacks, "'stack'"),
        ("duplicates", duplicates != "error", not plain, "'stack' or 'mosaic'"),
        ("skip_misfits", skip_misfits, not plain or named, "'stack' or 'mosaic', or to a pattern="),
    ):
        if given and not applies:
            raise ValueError(f"{name}= has no effect with arrange={kind!r}: it applies to arrange={modes}")
    if dim == "":
        raise ValueError("dim= is the name of a dimension, and it is empty")
    check_pattern(pattern, kind=kind, dim=dim, coordinate=coordinate)
