"""Joining variables without alignment gives what xarray's own constructor gives."""

import numpy as np
import pytest
import xarray as xr

from periplus.engine.assemble.decode import joined


def parts(*, fit=True):
    x = xr.Variable(("x",), np.arange(4.0), {"units": "m"})
    index = xr.indexes.PandasIndex(np.arange(4.0), "x")
    coords = {"x": index.create_variables({"x": x})["x"], "scalar": xr.Variable((), 3)}
    data = {
        "a": xr.Variable(("y", "x"), np.ones((3, 4)), {"long_name": "a"}, {"chunks": (3, 2)}),
        "b": xr.Variable(("x",) if fit else ("y",), np.zeros(4)),
    }
    return data, coords, {"x": index}, {"title": "t"}


def test_the_result_is_that_of_the_constructor():
    data, coords, indexes, attributes = parts()
    wanted = xr.Dataset(data, xr.Coordinates(coords, indexes), attributes)
    found = joined(data, coords, indexes, attributes)
    xr.testing.assert_identical(found, wanted)
    assert list(found.variables) == list(wanted.variables)
    assert found["a"].encoding == wanted["a"].encoding
    assert set(found.indexes) == set(wanted.indexes)
    assert dict(found.sizes) == dict(wanted.sizes)
    assert found.sel(x=2.0)["b"].item() == 0
    assert joined(*parts()[:3], {}).attrs == {}


def test_what_does_not_fit_is_an_error_as_ever():
    with pytest.raises(ValueError, match="conflicting sizes"):
        joined(*parts(fit=False))
