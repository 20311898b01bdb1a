"""A face whose library is not installed says what to install, in Python and on the command line."""

import subprocess
import sys

import numpy as np
import pytest

from periplus.errors import EXTRAS, advice
from periplus.testing.formats import tiff as tiffs

BLOCKED = """
import sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None  # what makes an import fail as if it were not installed
import periplus
from periplus.cli.app import run
path = sys.argv[2]
if sys.argv[3] == "store":
    try:
        periplus.index(path).store()
    except ModuleNotFoundError as error:
        print(error)
else:
    periplus.index(path, to=path + ".parquet").close()
    sys.exit(run(["convert", path + ".parquet", path + ".icechunk"]))
"""


@pytest.mark.parametrize(
    ("blocked", "how", "code", "said"),
    [
        ("zarr", "store", 0, "this needs zarr: pip install 'periplus[zarr]'"),
        ("icechunk", "convert", 2, "periplus: error: this needs icechunk: pip install 'periplus[icechunk]'"),
    ],
)
def test_what_to_install_is_said(blocked, how, code, said, tmp_path):
    path = tmp_path / "a.tif"
    path.write_bytes(tiffs.written(np.ones((1, 64, 64), "u2")))
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, blocked, str(path), how], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert said in (done.stdout + done.stderr).splitlines()


def test_every_extra_is_one_of_ours():
    from importlib.metadata import metadata

    assert set(EXTRAS.values()) <= set(metadata("periplus").get_all("Provides-Extra"))
    assert advice(ModuleNotFoundError("x", name="something.else")) is None
