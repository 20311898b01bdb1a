"""The page of codecs names every codec and every setting that the code knows, and no other."""

import re
from pathlib import Path

import pytest

from periplus.decode import CODECS, dted, jbp, png
from periplus.decode.jpeg import codec as jpegblock
from periplus.decode.jpeg2000 import codec as jpeg2000
from periplus.decode.pipeline import IMAGES, LIST, LIST_KEYS
from periplus.decode.tiff import codec as tifftile
from periplus.decode.tiff import tile
from periplus.decode.zarr import unpack
from periplus.scan.jpeg import bands as jpegbands

PAGE = (Path(__file__).parent.parent.parent / "docs" / "codecs.md").read_text()
BASE = "https://awslabs.github.io/osml-imagery-io/codecs/"
KEYS = {
    tifftile.NAME: tile.KEYS,
    jbp.NAME: jbp.KEYS,
    jpegblock.NAME: jpegblock.KEYS,
    jpeg2000.NAME: jpeg2000.KEYS,
    dted.NAME: dted.KEYS,
    png.NAME: png.KEYS,
    unpack.NAME: unpack.KEYS,
    LIST: LIST_KEYS,
    "periplus.crop": {"shape"},
    "periplus.vq": set(),
}


def rows():
    """Names in the first column of the tables, and the code words of the columns with settings."""
    found = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) >= 3:
            for name in re.findall(r"`([^`]+)`", cells[0]):
                name = name if name.startswith("periplus.") else BASE + name
                found[name] = set(re.findall(r"`([a-z0-9_]+)`", " ".join(cells[2:])))
    return found


def test_every_codec_has_its_row():
    assert {*KEYS, *IMAGES} <= set(rows())
    assert {name for name in CODECS if name.startswith(("periplus.", BASE))} <= set(rows())
    assert set(rows()) <= set(CODECS)


@pytest.mark.parametrize("name", sorted(KEYS))
def test_every_setting_is_named(name):
    assert rows()[name] == set(KEYS[name])


def test_the_numbers_of_bands_are_those_of_the_code():
    assert f"{jpegbands.LARGE >> 20} MiB or more" in PAGE
    assert f"about {jpegbands.ROWS} rows" in PAGE
