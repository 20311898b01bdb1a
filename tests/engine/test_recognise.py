"""Indexes are told from imagery: by content where they are at hand, by name where they are not."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import periplus
from periplus.engine.recognise import holds_index


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        ("s3://b/2021.parquet", None),
        ("s3://b/2021.geoparquet", None),
        ("https://h/a.PQ?x=1", None),
        ("s3://b/2021.duckdb", None),
        ("s3://b/index", None),
        ("s3://b/index.v1/", None),
        ("s3://b/a.tif", False),
        ("https://h/items.json", False),
    ],
)
def test_remote_ones_by_name(url, answer):
    assert holds_index(url) is answer


def test_local_ones_by_content_whatever_their_name(archive, tmp_path):
    index = periplus.index(archive["reflectance"])
    for name in ("index.parquet", "folder", "odd.tif"):
        index.write(tmp_path / name, form="dataset" if name == "folder" else "flat")
        assert holds_index(str(tmp_path / name)) is True
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    for path in (tmp_path / "other.parquet", tmp_path / "absent", tmp_path, archive["reflectance"]):
        assert holds_index(str(path)) is False
    assert holds_index(str(tmp_path / "a.duckdb")) is None
