"""Small stores with the traits that validators are for."""

import json
import shutil

import numpy as np
import pytest
import zarr

from periplus.conventions.identity import metadata


def declared(*names):
    return [metadata(name) for name in names]


@pytest.fixture(scope="session")
def unchanged(tmp_path_factory):
    return make_pyramid(tmp_path_factory.mktemp("pyramid") / "pyramid.zarr")


@pytest.fixture
def pyramid(unchanged, tmp_path):
    """A valid pyramid of three levels: means of means, absolute transforms, WKT2, consolidated."""
    return shutil.copytree(unchanged, tmp_path / "pyramid.zarr")


def make_pyramid(path, *, consolidate=True, zarr_format=3):
    from periplus.conventions.write.attributes import proj_attributes

    rng = np.random.default_rng(1)
    finest = rng.integers(0, 1000, (64, 96)).astype("f4")
    root = zarr.create_group(path, zarr_format=zarr_format)
    layout = []
    for level in range(3):
        step = 10 * 2**level
        shape = [64 >> level, 96 >> level]
        values = finest.reshape(shape[0], 1 << level, shape[1], 1 << level).mean(axis=(1, 3)).astype("f4")
        group = root.create_group(str(level))
        if zarr_format == 3:
            group.create_array("data", data=values, chunks=(16, 16), dimension_names=("y", "x"))
        else:
            array = group.create_array("data", data=values, chunks=(16, 16))
            array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
        item = {"asset": str(level), "spatial:transform": [step, 0, 5e5, 0, -step, 5e6], "spatial:shape": shape}
        if level:
            item |= {"derived_from": str(level - 1), "transform": {"scale": [2.0, 2.0], "translation": [0.0, 0.0]}}
        layout.append(item)
    root.attrs.update(
        {
            "zarr_conventions": declared("multiscales", "spatial", "proj"),
            "multiscales": {"layout": layout},
            "spatial:dimensions": ["y", "x"],
            "spatial:bbox": [5e5, 5e6 - 640, 5e5 + 960, 5e6],
            **proj_attributes("EPSG:32633"),
        }
    )
    if consolidate:
        zarr.consolidate_metadata(path, zarr_format=zarr_format)
    return path


def edited(path, change, name="zarr.json"):
    """Change a metadata document in place."""
    file = path / name
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))
