"""Decoding as xarray's own: times, masks, scales, and attributes that name other variables."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import xarray as xr

from periplus.engine.xgroup.nodes import UNREADABLE
from periplus.engine.xgroup.opening import Opening

WORDS = (
    "coordinates",
    "bounds",
    "climatology",
    "grid_mapping",
    "ancillary_variables",
    "formula_terms",
    "cell_measures",
)
"""Attributes whose words are names of other variables."""


def decode(
    opening: Opening,
    raw: Mapping[str, xr.Variable],
    attributes: Mapping[str, Any],
    *,
    own: Container[str],
    before: Mapping[str, Mapping[Any, Any]],
) -> tuple[Mapping[Any, xr.Variable], Any, set[Any]]:
    """Variables decoded, attributes of the Dataset, and names of coordinates.

    An array of the group itself (`own`) that cannot be decoded raises, as in xarray, unless it could with the
    attributes it had `before` a convention spoke of it. What came from elsewhere is left out. Warnings say so.
    """
    plain = {name: _worded(variable) for name, variable in raw.items()}
    decoding = opening.options.decoding
    try:
        return xr.conventions.decode_cf_variables(plain, dict(attributes), **decoding)
    except UNREADABLE as error:
        suspects = {name: variable for name, variable in plain.items() if name not in own or name in before}
        wrong = {name: reason for name, variable in suspects.items() if (reason := _fault(name, variable, decoding))}
        if not wrong:
            raise
        for name, reason in wrong.items():
            opening.report.broken(f"the coordinate {name}", "units", f"it cannot be decoded: {reason}")
            variable = plain.pop(name)
            if name in before:
                variable = variable.copy(deep=False)
                variable.attrs = dict(before[name])
                plain[name] = _worded(variable)
        try:
            return xr.conventions.decode_cf_variables(plain, dict(attributes), **decoding)
        except UNREADABLE:
            raise error from None


def _fault(name: str, variable: xr.Variable, decoding: Mapping[str, Any]) -> str:
    """Why a variable alone cannot be decoded; empty where it can be."""
    try:
        xr.conventions.decode_cf_variables({name: variable}, {}, **decoding)
    except UNREADABLE as error:
        return str(error).partition("\n")[0][:300] or type(error).__name__
    return ""


def _worded(variable: xr.Variable) -> xr.Variable:
    """The variable with names of others as text, which is all that xarray takes; what is no name is left out."""
    wrong = [key for key in WORDS if key in variable.attrs and not isinstance(variable.attrs[key], str)]
    if not wrong:
        return variable
    made = variable.copy(deep=False)
    made.attrs = {key: value for key, value in variable.attrs.items() if key not in wrong}
    for key in wrong:
        value = variable.attrs[key]
        if isinstance(value, list | tuple) and value and all(isinstance(word, str) for word in value):
            made.attrs[key] = " ".join(value)
    return made


def reworded(attributes: Mapping[Any, Any], called: Mapping[str, str]) -> dict[Any, Any]:
    """Attributes whose words name variables, with the names those have here."""
    made = dict(attributes)
    for key in WORDS:
        if isinstance(value := made.get(key), str):
            made[key] = " ".join(called.get(word, word) for word in value.split(" "))
    return made
