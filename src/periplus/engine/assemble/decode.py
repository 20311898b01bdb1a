"""CF decoding by xarray itself, and decoded variables joined to a Dataset."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import xarray as xr
from xarray.indexes import Index

from periplus.engine.assemble.source import UNREADABLE, Findings, reason_of

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
    own: Mapping[str, str],
    before: Mapping[str, Mapping[Any, Any]],
) -> tuple[Mapping[Any, xr.Variable], Any, set[Any]]:
    """Decoded variables, attributes of the Dataset, and names of coordinates.

    A variable that cannot be decoded gives a finding. It is decoded with the attributes it had `before` a convention
    added to them, or without its units, so that times stay numbers; where that fails too, it is skipped. `own` are the
    paths of the arrays of the group itself.
    """
    plain = {name: _with_text_names(variable) for name, variable in raw.items()}
    try:
        return xr.conventions.decode_cf_variables(plain, dict(attributes), **decoding)
    except ImportError:
        raise  # an argument asks for a package that is not installed
    except UNREADABLE as error:
        wrong = {name: reason for name, variable in plain.items() if (reason := _fault(name, variable, decoding))}
        if not wrong:
            raise
        units: dict[str, Any] = {}
        for name, reason in wrong.items():
            stated = before.get(name, plain[name].attrs)
            result = "it is skipped"
            variable = plain.pop(name)
            for without, then in (("", "it stays as stored"), ("units", "it stays numbers")):
                trial = _with_attributes(variable, stated, without=without)
                if not _fault(name, trial, decoding):
                    plain[name], result = trial, then
                    units |= {name: stated["units"]} if without else {}
                    break
            where, message = own.get(name, f"the coordinate {name}"), f"it cannot be decoded, {result}: {reason}"
            findings.broken(where, "units" if name in units else "", message, "node.unreadable")
        try:
            found = xr.conventions.decode_cf_variables(plain, dict(attributes), **decoding)
        except UNREADABLE:
            raise error from None
        for name, unit in units.items():
            found[0][name].attrs["units"] = unit
        return found


def _fault(name: str, variable: xr.Variable, decoding: Mapping[str, Any]) -> str:
    """Why a variable alone cannot be decoded; empty where it can be."""
    try:
        xr.conventions.decode_cf_variables({name: variable}, {}, **decoding)
    except UNREADABLE as error:
        return reason_of(error)
    return ""


def _with_attributes(variable: xr.Variable, attributes: Mapping[Any, Any], *, without: str = "") -> xr.Variable:
    made = variable.copy(deep=False)
    made.attrs = {key: value for key, value in attributes.items() if key != without}
    return _with_text_names(made)


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
