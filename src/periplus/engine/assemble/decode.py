"""CF decoding by xarray itself, and decoded variables joined to a Dataset."""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping
from typing import Any

import xarray as xr
from xarray.indexes import Index

from periplus.engine.assemble.source import UNREADABLE, Findings

NAMING_ATTRIBUTES = (
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
    raw: Mapping[str, xr.Variable],
    attributes: Mapping[str, Any],
    *,
    decoding: Mapping[str, Any],
    findings: Findings,
    own: Container[str],
    before: Mapping[str, Mapping[Any, Any]],
) -> tuple[Mapping[Any, xr.Variable], Any, set[Any]]:
    """Decoded variables, attributes of the Dataset, and names of coordinates.

    An array of the group itself (`own`) that cannot be decoded raises, as in xarray, unless it can with the attributes
    it had `before` a convention added to them. Coordinates from elsewhere that cannot be decoded are skipped with a
    finding.
    """
    plain = {name: _with_text_names(variable) for name, variable in raw.items()}
    try:
        return xr.conventions.decode_cf_variables(plain, dict(attributes), **decoding)
    except UNREADABLE as error:
        suspects = {name: variable for name, variable in plain.items() if name not in own or name in before}
        wrong = {name: reason for name, variable in suspects.items() if (reason := _fault(name, variable, decoding))}
        if not wrong:
            raise
        for name, reason in wrong.items():
            findings.broken(f"the coordinate {name}", "units", f"it cannot be decoded: {reason}")
            variable = plain.pop(name)
            if name in before:
                variable = variable.copy(deep=False)
                variable.attrs = dict(before[name])
                plain[name] = _with_text_names(variable)
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


def _with_text_names(variable: xr.Variable) -> xr.Variable:
    """The variable with names of others as text, as xarray requires; values that are not names are removed."""
    wrong = [key for key in NAMING_ATTRIBUTES if key in variable.attrs and not isinstance(variable.attrs[key], str)]
    if not wrong:
        return variable
    made = variable.copy(deep=False)
    made.attrs = {key: value for key, value in variable.attrs.items() if key not in wrong}
    for key in wrong:
        value = variable.attrs[key]
        if isinstance(value, list | tuple) and value and all(isinstance(word, str) for word in value):
            made.attrs[key] = " ".join(value)
    return made


def with_new_names(attributes: Mapping[Any, Any], new_names: Mapping[str, str]) -> dict[Any, Any]:
    """Attributes with renamed variables under their new names."""
    made = dict(attributes)
    for key in NAMING_ATTRIBUTES:
        if isinstance(value := made.get(key), str):
            made[key] = " ".join(new_names.get(word, word) for word in value.split(" "))
    return made


def joined(
    data: Mapping[Hashable, xr.Variable],
    coords: Mapping[Hashable, xr.Variable],
    indexes: Mapping[Hashable, Index],
    attributes: Mapping[Any, Any],
) -> xr.Dataset:
    """`xr.Dataset(data, xr.Coordinates(coords, indexes), attributes)`, without alignment where all fit together."""
    sizes: dict[Hashable, int] = {}
    fit = data.keys().isdisjoint(coords)
    for variable in (*data.values(), *coords.values()):
        for dim, size in zip(variable.dims, variable.shape, strict=True):
            fit = fit and sizes.setdefault(dim, size) == size
    # Only the labels of a dimension may have its name.
    fit = fit and all(name not in sizes for name in data)
    fit = fit and all(name not in sizes or variable.dims == (name,) for name, variable in coords.items())
    # Not a public name of xarray: without it, the public constructor takes a little longer.
    construct = getattr(xr.Dataset, "_construct_direct", None)
    if not fit or construct is None:
        return xr.Dataset(data, xr.Coordinates(coords, indexes), attributes)
    variables = dict(data)
    for name, variable in coords.items():
        variables[name] = variable if name in indexes else variable.to_base_variable()
    made: xr.Dataset = construct(
        variables, set(coords), dims=sizes, attrs=dict(attributes) or None, indexes=dict(indexes)
    )
    return made
