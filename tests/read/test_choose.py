"""Which image and which steps a question means."""

from datetime import datetime

import numpy as np
import pytest

from periplus.errors import MissingError
from periplus.model import Array, Catalog, Coordinate
from periplus.read.choose import pick, time_key

DAYS = np.arange("2021-01-01", "2022-01-01", dtype="M8[D]").astype("M8[us]")


def image(name, level=0):
    return Array(name=name, dims=("y", "x"), shape=(4, 4), chunks=(4, 4), dtype=np.dtype("u1"), level=level)


def catalog_of(*arrays):
    return Catalog(arrays={array.name: array for array in arrays})


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("a", "a/0/data"),
        ("a/data", "a/0/data"),
        ("a/1/data", "a/1/data"),
        ("a/1", "a/1/data"),
        ("b/images/1", "b/images/1/0/data"),
        ("a/0/mask", "a/0/mask"),
    ],
)
def test_an_image_goes_by_its_name_its_group_or_one_of_its_levels(asked, found):
    names = ["a/0/data", "a/0/mask", "b/0/data", "b/images/1/0/data"]
    catalog = catalog_of(*map(image, names), image("a/1/data", level=1))
    assert pick(catalog, asked)[1].name == found


def test_the_image_of_the_file_is_meant_where_none_is_named():
    assert pick(catalog_of(image("0/data"), image("0/mask"), image("images/1/0/data")), None)[1].name == "0/data"
    assert pick(catalog_of(image("scene/0/data")), None)[1].name == "scene/0/data"
    with pytest.raises(MissingError, match="2 images; choose one with array=: a/data, b/data"):
        pick(catalog_of(image("a/0/data"), image("b/0/data")), None)
    with pytest.raises(MissingError, match="no image or array 'c'; this index has a/data"):
        pick(catalog_of(image("a/0/data")), "c")


def key_of(time, *, dim="time"):
    """The key that reading by time gives an array of days."""
    days = Array(name="0/data", dims=(dim, "y"), shape=(365, 4), chunks=(1, 4), dtype=np.dtype("u1"))
    catalog = Catalog(arrays={"0/data": days}, coordinates={dim: Coordinate(name=dim, dims=(dim,), values=DAYS)})
    keys = [slice(None), slice(None)]
    time_key(catalog, days, time, keys)
    return keys[0]


@pytest.mark.parametrize("dim", ["time", "date", "t"])
def test_reading_by_time_follows_the_coordinate_whatever_its_name(dim):
    assert key_of("2021-02", dim=dim) == slice(31, 59)
    assert key_of(("2021-12-30", ".."), dim=dim) == slice(363, 365)


@pytest.mark.parametrize("time", ["2020", "2021-03-05T00:00:01", datetime(2021, 3, 5, 0, 0, 1), ("2022", "2023")])
def test_no_such_time_says_what_there_is(time):
    with pytest.raises(MissingError, match=r"2021-01-01.*2021-12-31"):
        key_of(time)
