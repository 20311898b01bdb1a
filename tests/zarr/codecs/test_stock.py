"""Stock zarr-python finds our codecs by their entry points."""

import json
import subprocess
import sys

import numpy as np
import pytest

from periplus.model import Found
from periplus.scan.drive import scan_bytes
from periplus.testing.formats import tiff as tiffs

READ = """
import sys, warnings
{before}
import numpy as np, zarr
warnings.simplefilter("ignore")
for folder in sys.argv[1:]:
    np.save(folder + "/seen.npy", zarr.open_array(folder, mode="r")[...])
print(sorted(name for name in sys.modules if name.split(".")[0] == "periplus"))
"""


def write(folder, data, version):
    """A store of the first array of a file, its chunks copied; an image codec follows `bytes`."""
    folder.mkdir()
    found = next(step for step in scan_bytes(data) if isinstance(step, Found))
    array, refs = found.array, found.refs
    codecs = list(array.encodings[0].codecs)
    plain = {"name": "bytes", "configuration": {"endian": "little"}} if array.dtype.itemsize > 1 else {"name": "bytes"}
    if codecs[0]["name"].startswith("https:"):
        codecs.insert(0, plain)
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": array.shape,
        "data_type": array.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": array.chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": [0.0, 0.0] if array.dtype.kind == "c" else 0,
        "codecs": codecs,
    }
    if version == 2:
        codec = codecs[-1]
        metadata = {
            "zarr_format": 2,
            "shape": array.shape,
            "chunks": array.chunks,
            "dtype": array.dtype.newbyteorder("<").str,
            "fill_value": 0,
            "order": "C",
            "compressor": None,
            "filters": [{"id": codec["name"], **codec["configuration"]}],
        }
    (folder / ("zarr.json" if version == 3 else ".zarray")).write_text(json.dumps(metadata))
    for row, cell in enumerate(refs.chunk.T.tolist()):
        key = ("c." if version == 3 else "") + ".".join(map(str, cell))
        start = int(refs.offset[row])
        (folder / key).write_bytes(data[start : start + int(refs.length[row])])
    return codecs


def read(*folders, before=""):
    """What a fresh Python reads from stores, and which of our modules it imported."""
    script = READ.format(before=before)
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, folders)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [np.load(folder / "seen.npy") for folder in folders], done.stdout


TILES = {"tiled": True, "blockxsize": 32, "blockysize": 32}


def test_a_store_with_our_codecs_opens_without_importing_us_first(tmp_path):
    image = tiffs.picture("stock", "u2", (3, 70, 90))
    for version in (2, 3):
        data = tiffs.gdal_written(image, compress="lzw", predictor=2, **TILES)
        assert write(tmp_path / str(version), data, version)[-1]["name"].endswith("/tiff-tile")
    # Where another library offers this codec too, zarr-python may have taken that one: the list means the same to both.
    for seen in read(tmp_path / "2", tmp_path / "3")[0]:
        np.testing.assert_array_equal(seen, image)


def test_our_codec_is_the_one_that_reads_when_the_other_library_is_absent(tmp_path):
    image = tiffs.picture("stock", "u2", (3, 70, 90))
    for version in (2, 3):
        data = tiffs.gdal_written(image, compress="lzw", predictor=2, endianness="big", **TILES)
        write(tmp_path / str(version), data, version)
    hide = """
import importlib.metadata as metadata
kept = [p for each in metadata.distributions() for p in each.entry_points if not p.value.startswith("aws.")]
def hidden(**params):
    return metadata.EntryPoints(kept).select(**params)
metadata.entry_points = hidden
"""
    found, loaded = read(tmp_path / "2", tmp_path / "3", before=hide)
    for seen in found:
        np.testing.assert_array_equal(seen, image)
    assert {"'periplus.zarr.codecs.v2'", "'periplus.zarr.codecs.v3'"} <= set(loaded.strip("[]\n").split(", "))


def test_filters_need_no_zarr():
    script = """
import sys
sys.modules["zarr"] = None
import numcodecs
codec = numcodecs.get_codec({"id": "periplus.png", "width": 1, "height": 1, "bands": 1, "bits": 8})
print(type(codec).__name__, codec.get_config()["bits"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["Png", "8"], done.stderr[-2000:]


def test_once_registered_ours_is_taken_whoever_is_imported_later():
    pytest.importorskip("aws.osml.io.zarr_codecs")
    script = """
import warnings
warnings.simplefilter("error")
from periplus.zarr.codecs.v3 import register
register()
import numcodecs, zarr.registry
import aws.osml.io.zarr_codecs
name = "https://awslabs.github.io/osml-imagery-io/codecs/dted"
print(zarr.registry.get_codec_class(name).__module__)
settings = {"num_lat_points": 3, "num_lon_lines": 3, "record_size": 18}
print(type(numcodecs.get_codec({"id": name, **settings})).__module__)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert done.stdout.split() == ["periplus.zarr.codecs.v3", "periplus.zarr.codecs.v2"], done.stderr[-2000:]
