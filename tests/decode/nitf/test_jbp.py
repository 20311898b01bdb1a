"""The jbp-block codec decodes blocks of any interleave and width, and refuses what it cannot be."""

import numpy as np
import pytest

from periplus.errors import DecodeError, FormatError
from periplus.testing.formats import nitf as nitfs

NAME = "https://awslabs.github.io/osml-imagery-io/codecs/jbp-block"


def codec(item: nitfs.ImageSegment, **changes):
    kind, bits, _ = nitfs.KINDS[item.kind]
    bands, height, width = item.values.shape
    configuration = {
        "num_bands": bands, "block_height": height, "block_width": width, "nbpp": bits, "imode": item.mode,
        "pvtype": kind,
    }  # fmt: skip
    return {"name": NAME, "configuration": {**configuration, **changes}}


@pytest.mark.parametrize("mode", ["B", "P", "R"])
@pytest.mark.parametrize("kind", list(nitfs.KINDS))
def test_every_interleave_and_type_decodes(mode, kind, decoder):
    item = nitfs.ImageSegment(values=nitfs.values_of(kind), kind=kind, mode=mode)
    shape = item.values.shape
    data = b"".join(nitfs.blocks_of(item))
    found = decoder(codec(item), shape, item.values.dtype)(data, valid=shape)
    np.testing.assert_array_equal(found, item.values)
    stacked = decoder(codec(item), (1, *shape), item.values.dtype)(data, valid=(1, *shape))
    np.testing.assert_array_equal(stacked[0], item.values)
    with pytest.raises(DecodeError, match="bytes"):
        decoder(codec(item), shape, item.values.dtype)(data[:-1], valid=shape)


def test_a_block_cut_to_rows_may_end_early(decoder):
    item = nitfs.ImageSegment(values=nitfs.values_of("u12"), kind="u12", mode="P")
    part = nitfs.ImageSegment(values=item.values[:, :9], kind="u12", mode="P")
    found = decoder(codec(item), item.values.shape, "u2")(b"".join(nitfs.blocks_of(part)), valid=part.values.shape)
    np.testing.assert_array_equal(found, part.values)


@pytest.mark.parametrize(
    "changes",
    [
        {"imode": "Q"},
        {"imode": None},
        {"num_bands": 2},
        {"num_bands": True},
        {"block_width": 0},
        {"block_height": 10**12},
        {"nbpp": 65},
        {"nbpp": 16},
        {"nbpp": "8"},
        {"pvtype": "SI"},
        {"pvtype": None},
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, decoder):
    item = nitfs.ImageSegment(values=nitfs.values_of("u8"))
    with pytest.raises(FormatError):
        decoder(codec(item, **changes), item.values.shape, "u1")
