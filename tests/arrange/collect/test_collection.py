"""collect: names of groups, and every file's references under them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from periplus.arrange import arrange, collect
from periplus.arrange.collect.names import group_names


def names(make: SimpleNamespace, *urls: str, **more: str) -> list[str]:
    return group_names([make.entry(url, make.image(), **more) for url in urls])


def test_one_file_keeps_its_names(make: SimpleNamespace) -> None:
    entries = [make.entry("/data/a.tif", make.image("0/data"), make.image("1/data", size=32, level=1))]
    result = collect(entries, make.lookup(entries))
    assert list(result.catalog.arrays) == ["0/data", "1/data"]
    assert [name for name, _ in result.blocks] == ["0/data", "1/data"]


def test_groups_are_paths_below_the_common_folder(make: SimpleNamespace) -> None:
    assert names(make, "/data/2021/a.tif", "/data/2022/b.tif") == ["2021/a", "2022/b"]
    assert names(make, "s3://bucket/x/a.tif", "s3://bucket/x/b.tif") == ["a", "b"]
    assert names(make, "s3://one/a.tif", "https://two/a.tif") == ["s3_one/a", "https_two/a"]


def test_only_the_extension_tells_apart(make: SimpleNamespace) -> None:
    assert names(make, "/d/a.tif", "/d/a.jp2", "/d/b.tif") == ["a.tif", "a.jp2", "b"]


def test_groups_are_unique_and_safe(make: SimpleNamespace) -> None:
    entries = [
        make.entry(f"/d/{k}.tif", make.image(), group=group) for k, group in enumerate(["x", "x", "../..", "\x01"])
    ]
    assert group_names(entries) == ["x", "x_2", "__/__", "_"]


def test_a_group_is_never_inside_an_array(make: SimpleNamespace) -> None:
    entries = [make.entry("/d/a.tif", make.image()), make.entry("/d/a/0/data.tif", make.image())]
    result = collect(entries, make.lookup(entries))
    arrays = set(result.catalog.arrays)
    for name in arrays:
        parts = name.split("/")
        assert not any("/".join(parts[:k]) in arrays for k in range(1, len(parts)))


def test_secrets_of_a_url_are_in_no_name(make: SimpleNamespace) -> None:
    for name in names(make, "https://u:pw@h/a.tif?sig=SECRET", "https://h/b.tif?sig=SECRET"):
        assert "SECRET" not in name
        assert "pw" not in name


def test_bad_files_are_rows_without_arrays(make: SimpleNamespace) -> None:
    entries = [
        make.entry("/d/a.tif", make.image(), attributes={"AREA": "x"}),
        make.entry("/d/b.tif", error="format: it is no TIFF"),
        make.entry("/d/c.tif", make.image()),
    ]
    result = arrange(entries, make.lookup(entries))
    assert result.kind == "collect"
    assert set(result.catalog.arrays) == {"a/0/data", "c/0/data"}
    assert result.catalog.attributes == {"a": {"AREA": "x"}}
    assert list(result.files.status) == ["ok", "error", "ok"]
    assert result.files.error[1] == "format: it is no TIFF"
    owners = {name: set(refs.file.tolist()) for name, refs in result.blocks if refs.file is not None}
    assert owners == {"a/0/data": {0}, "c/0/data": {2}}


def test_files_keep_facts(make: SimpleNamespace) -> None:
    entries = [make.entry("/d/a.tif", make.image(), day=5)]
    files = collect(entries, make.lookup(entries)).files
    assert files.size.tolist() == [1000]
    assert files.datetime[0] == np.datetime64("2021-01-05")
    assert np.isnat(files.last_modified[0])
