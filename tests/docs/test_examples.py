"""The Python of the documents runs, page by page, and prints what the page says it prints."""

import contextlib
import doctest
import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine
from rasterio.enums import Resampling

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?P<skip><!-- not run[^>]*-->\n)?^```python\n(?P<code>.*?)^```$(?:\n\n?^```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# rioxarray multiplies affines with `*`, which affine 3.1 frowns upon.
pytestmark = [
    # What zarr-python says of every deflate stream.
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification"),
]


def blocks(page):
    """(code, expected output or None, first line number) of every block that is to run."""
    text = page.read_text()
    return [
        (found["code"], found["output"], text.count("\n", 0, found.start("code")))
        for found in BLOCK.finditer(text)
        if found["skip"] is None
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the documents speak of: `archive/`, four scenes of one grid, a month apart."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "archive").mkdir()
    rng = np.random.default_rng(5)
    for month in range(1, 5):
        values = rng.integers(1, 10_000, (3, 300, 400)).astype("uint16")
        values[:, :50, :60] = 0
        profile = {"driver": "GTiff", "count": 3, "height": 300, "width": 400, "dtype": "uint16", "crs": "EPSG:32633"}
        profile |= {"transform": Affine(10, 0, 300000, 0, -10, 5200000), "nodata": 0, "compress": "deflate"}
        profile |= {"tiled": True, "blockxsize": 128, "blockysize": 128}
        with rasterio.open(folder / "archive" / f"scene_2021{month:02}05.tif", "w", **profile) as file:
            file.write(values)
            file.scales, file.offsets = (1e-4,) * 3, (0.0,) * 3
            file.descriptions = ("green", "red", "nir")
            file.update_tags(TIFFTAG_DATETIME=f"2021:{month:02}:05 10:20:30")
            file.build_overviews([2], Resampling.average)
    return folder


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page, folder, tmp_path, monkeypatch):
    shutil.copytree(folder / "archive", tmp_path / "archive")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for code, expected, line in blocks(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * line + code, str(page), "exec"), names)
        if expected is not None and not doctest.OutputChecker().check_output(expected, printed.getvalue(), LOOSELY):
            pytest.fail(f"{page.name}, line {line}, prints\n{printed.getvalue()}\nand not\n{expected}")


def test_blocks_are_found_with_their_output_and_their_line(tmp_path):
    page = tmp_path / "page.md"
    shown = "# T\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n"
    page.write_text(shown + "\n<!-- not run: why -->\n```python\nx\n```\n\n```python\ny\n```\n")
    assert blocks(page) == [("print(1)\n", "1\n", 3), ("y\n", None, 16)]
