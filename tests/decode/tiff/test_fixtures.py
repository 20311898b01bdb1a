"""TIFF files of every flavour, written by GDAL and tifffile, give the values those libraries read."""

import numpy as np
import pytest

from periplus.testing.formats import tiff as tiffs

GROUPS = 12


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_flavour_of_tiff_gives_the_values_its_writer_meant(group, read_all):
    for name in tiffs.names()[group::GROUPS]:
        case = tiffs.case(name)
        arrays = read_all(case.data)
        for key, wanted in case.arrays.items():
            found = arrays[key]
            assert found.dtype == wanted.dtype, (name, key)
            if case.lossy:
                # GDAL's own JPEG decoder is another one than ours: chroma differs by a few levels.
                assert np.abs(found.astype("f8") - wanted.astype("f8")).mean() < 2, (name, key)
            else:
                np.testing.assert_array_equal(found, wanted, err_msg=f"{name} {key}")
