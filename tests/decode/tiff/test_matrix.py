"""Every type, predictor, byte order and layout, and every compression, as tifffile writes and reads it."""

import io
import itertools

import numpy as np
import pytest
import tifffile

from periplus.testing.formats.tiff import picture

NUMBERS = {"none": 1, "lzw": 5, "adobe_deflate": 8, "deflate": 32946, "packbits": 32773, "zstd": 50000, "lzma": 34925}
INTEGERS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")
FLOATS = ("f2", "f4", "f8")
COMPLEX = ("c8", "c16")
HEIGHT, WIDTH, TILE, ROWS = 37, 45, 16, 10


LAYOUTS = [(bands, planar, tiled) for bands, planar in ((1, False), (3, False), (3, True)) for tiled in (False, True)]
COMBINATIONS = [
    *itertools.product(("none", "adobe_deflate"), INTEGERS + FLOATS + COMPLEX, [LAYOUTS]),
    # What is decompressed becomes values in the same way whatever the compression is.
    *itertools.product([name for name in NUMBERS if name not in ("none", "adobe_deflate")], ("u1", "u2", "f4"),
                       [[(3, False, False), (3, True, True)]]),
]  # fmt: skip


def predictors(dtype: str, compression: str) -> tuple[int, ...]:
    if compression in ("none", "packbits"):
        return (1,)
    return {"u": (1, 2), "i": (1, 2), "f": (1, 3), "c": (1,)}[dtype[0]]


@pytest.mark.parametrize(("compression", "dtype", "layouts"), COMBINATIONS, ids=str)
def test_all_byte_orders_and_layouts(compression, dtype, layouts, decoder):
    for predictor, order, (bands, planar, tiled) in itertools.product(predictors(dtype, compression), "<>", layouts):
        image = picture(f"{compression}-{dtype}", dtype, (bands, HEIGHT, WIDTH))
        check(image, compression, predictor, order, planar, tiled, decoder)


def check(image, compression, predictor, order, planar, tiled, decoder):
    stored = image[0] if len(image) == 1 else image if planar else np.moveaxis(image, 0, -1)
    target = io.BytesIO()
    with tifffile.TiffWriter(target, byteorder=order) as writer:
        writer.write(
            np.ascontiguousarray(stored),
            photometric="minisblack",
            planarconfig=None if len(image) == 1 else "separate" if planar else "contig",
            compression=None if compression == "none" else compression,
            predictor=predictor if predictor > 1 else False,
            metadata=None,
            **({"tile": (TILE, TILE)} if tiled else {"rowsperstrip": ROWS}),
        )
    data = target.getvalue()
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        page = file.pages.first
        assert page.predictor == predictor
        samples = 1 if planar else len(image)
        height, width = (TILE, TILE) if tiled else (ROWS, WIDTH)
        codec = {
            "name": "https://awslabs.github.io/osml-imagery-io/codecs/tiff-tile",
            "configuration": {
                "compression": NUMBERS[compression],
                "bits_per_sample": image.dtype.itemsize * 8,
                "samples_per_pixel": samples,
                "photometric": 1,
                "planar_config": 2 if planar else 1,
                "predictor": predictor,
                "tile_width": width,
                "tile_height": height,
                "sample_format": {"u": 1, "i": 2, "f": 3, "c": 6}[image.dtype.kind],
                "jpeg_tables": None,
                "byte_order": "big" if order == ">" else "little",
            },
        }
        decode = decoder(codec, (samples, height, width), image.dtype)
        for segment, place, _ in page.segments():
            index = np.ravel_multi_index(
                [place[0], place[2] // height, place[3] // width],
                [len(image) if planar else 1, -(-HEIGHT // height), -(-WIDTH // width)],
            )
            raw = data[page.dataoffsets[index] :][: page.databytecounts[index]]
            valid = (samples, min(height, HEIGHT - place[2]), min(width, WIDTH - place[3]))
            values = decode(raw, valid=valid)[:, : valid[1], : valid[2]]
            wanted = np.moveaxis(segment[0], -1, 0)[:, : valid[1], : valid[2]]
            np.testing.assert_array_equal(values, wanted, err_msg=f"{predictor} {order} {planar} {tiled}")
