"""The computed axis answers what a pandas index of the same labels answers."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from periplus.engine.assemble.axis import AffineAxis

STEPS = st.sampled_from([10.0, -10.0, 1 / 3, -1 / 3600, 0.1, 2.7778e-4, -1e-9, 1e5])
CORNERS = st.sampled_from([0.0, -180.0, 300000.1, 5_000_000.7, 1e-3])


@st.composite
def axes(draw):
    axis = AffineAxis.of(draw(CORNERS), draw(STEPS), draw(st.integers(1, 60)))
    assume(axis is not None)
    part = slice(*draw(st.tuples(*[st.none() | st.integers(-70, 70)] * 2, st.sampled_from([None, 1, 2, 7, -1, -3]))))
    axis = axis[part]
    assume(len(axis) > 0)
    return axis


@st.composite
def axes_and_labels(draw):
    axis = draw(axes())
    kept = axis.labels()
    exact = st.sampled_from(list(kept))
    places = st.floats(-3, len(axis) + 3)
    between = places.map(lambda p: float(kept[0] + p * axis.step * axis.positions.step))
    beside = st.tuples(exact, st.sampled_from([-np.inf, np.inf])).map(lambda pair: float(np.nextafter(*pair)))
    label = exact | between | beside | st.sampled_from([-np.inf, np.inf, np.nan, 1e300])
    return axis, draw(st.lists(label, min_size=1, max_size=8))


@given(axes_and_labels(), st.sampled_from([None, "nearest", "pad", "backfill"]), st.sampled_from([None, 0.04, 3.0]))
def test_labels_are_located_as_pandas_locates_them(case, method, tolerance):
    axis, labels = case
    # Where all distances round to the same number, pandas finds nothing.
    finite = [v for v in labels if abs(v) < 1e200] or [0.0]
    if method is None:
        tolerance = None
    expected = pd.Index(axis.labels()).get_indexer(finite, method=method, tolerance=tolerance)
    assert axis.locate(finite, method, tolerance).tolist() == expected.tolist()


@given(axes_and_labels())
def test_exact_places_of_anything(case):
    axis, labels = case
    assert axis.locate(labels).tolist() == pd.Index(axis.labels()).get_indexer(labels).tolist()


@given(axes_and_labels(), st.data(), st.sampled_from([None, 1, 2, -1, -2]))
def test_slices_of_labels_are_those_of_pandas(case, data, step):
    axis, labels = case
    ends = st.none() | st.sampled_from([v for v in labels if not np.isnan(v)] or [0.0])
    start, stop = data.draw(ends), data.draw(ends)
    kept = axis.labels()
    ours = kept[axis.window(slice(start, stop, step))]
    if (step or 1) > 0:
        theirs = kept[pd.Index(kept).slice_indexer(start, stop, step)]
    else:
        # pandas wraps around where a falling slice lies wholly before the first label; nothing is there.
        upright = kept[pd.Index(kept).slice_indexer(stop, start)]
        theirs = upright[::step]
    assert ours.tolist() == theirs.tolist()


@given(axes(), st.integers(-70, 70), st.integers(-70, 70), st.sampled_from([1, 2, 3, -1, -2]))
def test_a_part_of_an_axis_has_exactly_those_labels(axis, start, stop, step):
    part = slice(start, stop, step)
    assert axis[part].labels().tolist() == axis.labels()[part].tolist()


def test_positions_stay_exact_far_out():
    axis = AffineAxis.of(-180.0, 360 / 3_600_000, 3_600_000)
    kept = axis.labels()
    some = np.linspace(0, len(axis) - 1, 10_000).astype(int)
    assert (axis.locate(kept[some]) == some).all()
    assert (axis.locate(np.nextafter(kept[some], np.inf), "pad") == some).all()
    assert (axis.locate(np.nextafter(kept[some], -np.inf), "backfill") == some).all()


@pytest.mark.parametrize(("corner", "step"), [(0.0, 0.0), (1e9, 1e-9), (np.nan, 1.0), (0.0, np.inf), (1e308, 1e308)])
def test_labels_that_would_not_differ_make_no_axis(corner, step):
    assert AffineAxis.of(corner, step, 100) is None


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="nearest"):
        AffineAxis.of(0, 1, 3).locate([1.0], "closest")
