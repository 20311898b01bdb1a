"""Reads every exit of a folder with stock libraries; run by test_stock_readers.py where periplus cannot be imported."""

import importlib.util
import json
import sys
import warnings

SITE, FOLDER, ANSWER, *EXITS = sys.argv[1:]
sys.path.insert(0, SITE)
warnings.simplefilter("ignore")
if importlib.util.find_spec("periplus") is not None:
    sys.exit("periplus is installed here")

from pathlib import Path  # noqa: E402

import icechunk  # noqa: E402
import numpy as np  # noqa: E402
import zarr  # noqa: E402
from fsspec.implementations.reference import ReferenceFileSystem  # noqa: E402
from zarr.storage import FsspecStore  # noqa: E402

FILES = f"file://{Path(FOLDER).resolve()}/files/"


def references(path):
    """A store over kerchunk references, as fsspec reads them."""
    options = {"remote_protocol": "file", "asynchronous": True, "skip_instance_cache": True}
    return FsspecStore(ReferenceFileSystem(str(path), **options), read_only=True, path="")


def opener(path):
    """From the name of an array to the array, opened by itself: another one that cannot be opened is no hindrance."""
    if path.suffix == ".icechunk":
        storage = icechunk.local_filesystem_storage(str(path))
        repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access={FILES: None})
        store = repository.readonly_session("main").store
    elif path.suffix in (".json", ".parq"):
        store = references(path)
    elif (path / "groups.json").exists():
        groups = json.loads((path / "groups.json").read_text())

        def inner(name):
            group, _, own = name.rpartition("/")
            one = path / f"{groups.index(group)}.json"
            if not one.exists():
                raise KeyError(name)
            return zarr.open_array(references(one), path=own, mode="r", zarr_format=2)

        return inner
    else:
        store = str(path)
    version = 2 if path.name.startswith("kerchunk2") else 3
    return lambda name: zarr.open_array(store, path=name, mode="r", zarr_format=version)


def outcome(open_array, name, truth):
    """`equal`, `absent`, the text of an error, or how values are wrong."""
    try:
        values = np.asarray(open_array(name)[...])
    except (KeyError, FileNotFoundError):
        return "absent"
    except Exception as error:  # noqa: BLE001 - whatever a stock reader raises, it is not a wrong value
        return f"error: {error!r}"
    if values.shape != truth.shape:
        return f"wrong shape {values.shape}"
    if np.array_equal(values, truth, equal_nan=truth.dtype.kind in "fc"):
        return "equal"
    return f"wrong in {np.mean(values != truth):.0%}: {values.flat[:3]}"


truths = dict(np.load(Path(FOLDER) / "truth.npz"))
answers = {}
for each in EXITS:
    open_array = opener(Path(FOLDER) / each)
    answers[each] = {name: outcome(open_array, name, truth) for name, truth in truths.items()}
Path(ANSWER).write_text(json.dumps(answers))
