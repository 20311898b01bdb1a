"""Every exit, for every encoding, through stock readers without periplus: right values or an error, never fill.

The readers run in processes of their own, with everything that is installed here except periplus: once without and
once with osml-imagery-io, whose codecs have the same names as some of ours.
"""

import asyncio
import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from virtualizarr.accessor import VirtualiZarrDatasetAccessor
from zarr.core.buffer import default_buffer_prototype

import periplus
from periplus.testing.formats import dted as dteds
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats import pictures
from periplus.testing.formats import tiff as tiffs
from periplus.zarr.virtualizarr import manifest_store

pytestmark = [
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore:The codec `vlen-utf8`"),
]
READER = Path(__file__).with_name("stock_reader.py")
HIDDEN = {
    "stock": ("periplus", "_editable", "__editable__", "aws", "osml"),
    "osml": ("periplus", "_editable", "__edit"),
}
"""Beginnings of the names of packages that each environment lacks."""
CODECS = ("standard", "imagery", "all")
TIFFS = (
    "le-classic-tiles-chunky-none-p1", "be-big-tiles-planar-none-p1", "le-classic-tiles-chunky-deflate-p2",
    "be-classic-tiles-chunky-deflate-p2", "le-classic-strips-chunky-none-p1", "le-classic-strips-planar-deflate-p2",
    "be-float16-3", "le-complex64-3", "be-float32-chunky-lzw-p3", "lzw-strips", "packbits-tiles", "zstd-tiles",
    "lzma-tiles", "png-tiles", "le-bool-1", "jpegxl-lossless-tiles", "jpeg2000-lossless-tiles", "lerc-lossless-tiles",
    "webp-lossless-strips", "jpeg-ycbcr", "jpeg-planar", "uint1", "uint4", "uint12-pixel", "uint12-big-endian",
    "float32-big-gdal-p2", "ccittfax3", "ccittfax4", "gdal-lerc_zstd-pixel", "overviews-mask", "sparse",
    "sparse-uncompressed", "complex-int16", "float24-big-endian", "geo-nan", "palette",
)  # fmt: skip
NITFS = (
    "plain-u8-B-tiles-3", "masked-u8-P-tiles-3", "masked-u16-R-tiles-3", "plain-u16-S-tiles-3",
    "plain-f32-R-tiles-3", "masked-f32-B-tiles-1", "plain-c64-P-tiles-3", "plain-u12-B-tiles-1",
    "masked-u1-B-tiles-1", "plain-b1-B-tiles-3", "plain-i11-P-tiles-3",
)  # fmt: skip
J2KS = ("untiled-rpcl", "tiled", "tiled-odd", "tiled-plt", "parts-rpcl", "plt-precincts")
EXITS = (
    "store-standard", "store-all", "standard.icechunk", "all.icechunk", "virtualizarr-all", "kerchunk2-standard.json",
    "kerchunk2-imagery.json", "kerchunk2-all.json", "kerchunk2-all.parq", "kerchunk3-standard.json",
    "kerchunk3-all.json",
)  # fmt: skip
READ = {"stock": EXITS, "osml": tuple(name for name in EXITS if "standard" not in name)}
"""osml-imagery-io changes nothing for exits that use no codec of its own."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """A folder with one collection of all encodings, its values as our reader has them, and every exit of it."""
    folder = tmp_path_factory.mktemp("stock")
    (folder / "files").mkdir()
    made = {f"{name}.tif": tiffs.case(name).data for name in TIFFS}
    made |= {f"{name}.ntf": nitfs.nitf(nitfs.case(name)) for name in NITFS}
    made |= {f"{name}.j2k": j2ks.layout(name) for name in J2KS}
    made |= {f"{name}.jpg": make() for name, make in pictures.jpegs().items()}
    made["apart.j2k"] = j2ks.interleaved(j2ks.layout("parts-rpcl"))
    made["cell.dt0"] = dteds.gdal_cell(dteds.heights("cell"))
    made["a.png"] = pictures.png(tiffs.picture("png", "u1", (3, 40, 50)), bits=8, colour=2)
    for name, data in made.items():
        (folder / "files" / name).write_bytes(data)
    index = periplus.index(folder / "files", to=folder / "files/index.parquet", arrange="collect")
    assert len(index.files) == len(made)
    np.savez(folder / "truth.npz", **{name: np.asarray(index[name][...]) for name in index})
    refused = {}
    for name in EXITS:
        refused[name] = write_exit(index, folder, name)
    return folder, index, refused


def write_exit(index, folder, name):
    """Write one exit under its name; the arrays it refuses."""
    target, codecs = folder / name, next(codecs for codecs in CODECS if codecs in name)
    if name.startswith("kerchunk"):
        written = index.write(target, form="kerchunk", zarr_format=int(name[8]), codecs=codecs, skip_unsupported=True)
        return set(written.report.skipped)
    if name.endswith(".icechunk"):
        return set(index.write(target, codecs=codecs, skip_unsupported=True).report.skipped)
    if name.startswith("store"):
        asyncio.run(copied(index.store(codecs=codecs), target))
        return set()
    target.mkdir()
    refused = set()
    groups = {array.rpartition("/")[0] for array in index}
    for number, group in enumerate(sorted(groups)):
        if not group.endswith("/0"):  # one level of each file is enough
            refused |= {array for array in index if array.startswith(f"{group}/")}
            continue
        virtual = manifest_store(index, group=group, codecs=codecs).to_virtual_dataset()
        try:
            VirtualiZarrDatasetAccessor(virtual.drop_vars(virtual.coords)).to_kerchunk(
                str(target / f"{number}.json"), format="json"
            )
        except (ValueError, NotImplementedError, TypeError):  # VirtualiZarr has no Zarr v2 codec for it, and says so
            (target / f"{number}.json").unlink(missing_ok=True)
            refused |= {f"{group}/{array}" for array in virtual.data_vars}
    (target / "groups.json").write_text(json.dumps(sorted(groups)))
    return refused


async def copied(store, folder):
    """Every key of a store as a file."""
    async for key in store.list():
        found = await store.get(key, default_buffer_prototype())
        assert found is not None, key
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(found.to_bytes())


def read_in(environment, folder, site):
    """By exit and array `equal`, `absent`, `wrong …` or `error …`, as read without the hidden packages."""
    for item in Path(sysconfig.get_path("purelib")).iterdir():
        if not item.name.startswith(HIDDEN[environment]) and item.suffix != ".pth":
            (site / item.name).symlink_to(item)
    answer = site / "answer.json"
    # Neither the environment's own packages nor its path files are seen.
    command = [sys.executable, "-I", "-S", str(READER), str(site), str(folder), str(answer), *READ[environment]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1000)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(answer.read_text())


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("environment", HIDDEN)  # all exits in one test: each of them needs the whole archive
def test_a_stock_reader_gets_right_values_or_an_error(environment, archive, tmp_path):
    if environment == "osml":
        pytest.importorskip("aws.osml.io")
    folder, index, refused = archive
    plain = {array for array, leaf in index.store(codecs="all").layout.leaves.items() if leaf.kind == "standard"}
    found = read_in(environment, folder, tmp_path)
    assert set(found) == set(READ[environment])
    for name, answers in found.items():
        assert set(answers) == set(index)
        wrong = {array: text for array, text in answers.items() if text.startswith("wrong")}
        assert not wrong, name
        absent = {array for array, text in answers.items() if text == "absent"}
        assert absent == refused[name], name
        equal = {array for array, text in answers.items() if text == "equal"}
        if "standard" in name:
            assert equal == set(index) - refused[name], name
        elif not name.startswith(("kerchunk2", "virtualizarr")):  # Zarr v2 has no transpose
            assert equal >= (plain & set(index)) - refused[name], name
        if environment == "osml":
            assert len(equal - plain) > 10, name
