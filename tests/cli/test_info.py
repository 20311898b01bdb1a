"""periplus info: what an index or a file holds."""

import json

from periplus.testing.formats import nitf as nitfs


def test_an_index_is_shown_with_all_a_person_asks(index, periplus):
    done = periplus("info", index)
    assert done.code == 0
    for words in ("EPSG:32633", "500000, 4197440, 503200, 4200000", "2023-01-01", "2023-05-01", "4 × 3 × 256 × 320",
                  "uint16", "deflate, predictor 2", "0/data", "1/data", "stack along time"):  # fmt: skip
        assert words in done.out, words


def test_json_has_everything(index, periplus):
    said = json.loads(periplus("info", index, "--json").out)
    arrays = {array["name"]: array for array in said["arrays"]}
    assert arrays["0/data"]["shape"] == [4, 3, 256, 320]
    assert arrays["0/data"]["nodata"] == 0
    assert arrays["1/data"]["shape"] == [4, 3, 128, 160]
    assert arrays["1/data"]["bbox"] == arrays["0/data"]["bbox"] == [500000.0, 4197440.0, 503200.0, 4200000.0]
    assert said["coordinates"]["time"] == {"count": 4, "first": "2023-01-01T00:00:00Z", "last": "2023-05-01T00:00:00Z"}
    assert said["files"]["count"] == 4
    assert said["rows"] == 4 * (20 + 6)


def test_a_file_is_shown_as_its_own_index(archive, periplus):
    done = periplus("info", archive / "scene_20230101.tif")
    assert done.code == 0
    assert "3 × 256 × 320" in done.out


def test_failed_files_are_listed(archive, periplus):
    (archive / "broken.tif").write_bytes(b"II*\0 this is no TIFF")
    periplus("index", f"{archive}/*.tif", "-o", archive.parent / "out.parquet")
    said = periplus("info", archive.parent / "out.parquet").out
    assert "1 failed" in said
    assert "broken.tif: " in said


def test_what_is_neither_index_nor_image_is_refused(tmp_path, periplus):
    (tmp_path / "notes.dat").write_bytes(b"some words" * 99)
    (tmp_path / "notes.parquet").write_bytes(b"some words" * 99)
    for name in ("notes.dat", "notes.parquet"):
        done = periplus("info", tmp_path / name)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("periplus: format: ")
    assert periplus("info", tmp_path / "absent.parquet").err.startswith("periplus: missing: ")


def test_of_many_records_each_is_shown_in_part(periplus, tmp_path):
    records = nitfs.tre("RPC00B", b"1" + b"0" * 1040) + nitfs.tre("USE00A", b"7" * 107) + nitfs.tre("XYZZYA", b"plugh")
    path = tmp_path / "a.ntf"
    path.write_bytes(nitfs.nitf(nitfs.ImageSegment(values=nitfs.values_of("u8", 3), tres=records)))
    said = " ".join(periplus("info", path).out.split())
    assert "tag RPC00B, length 1041, fields SUCCESS 1, ERR_BIAS 0000000" in said
    assert "…; tag USE00A, length 107, fields ANGLE_TO_NORTH 777" in said
    assert "…; tag XYZZYA, length 5" in said
    assert "IMFLT" not in said
