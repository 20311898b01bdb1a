"""Indexes and reads seeded mutants of files, or opens mutants of indexes; run as a program, it reports as JSON.

    python fuzz_program.py FOLDER KIND SHARE SHARES EACH SEED

KIND is `tiffs`, `images` (all other formats) or `indexes`. The program takes every SHARES-th file of that kind and
tries EACH mutants of it. FOLDER/current names the mutant being tried, so that the caller knows which one killed the
process.
"""

import faulthandler
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pyarrow.parquet as pq
import xarray as xr
from affine import Affine

import periplus
from periplus.limits import MIB, Limits
from periplus.parse.jpeg2000.segments import PLT, PPM, SOP
from periplus.table.document.document import KEY
from periplus.testing.formats import codestreams, pictures
from periplus.testing.formats import dted as dteds
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats import tiff as tiffs
from periplus.testing.formats.nitf import ImageSegment
from periplus.testing.mutants import byte_mutants, image_mutants, json_mutants
from periplus.testing.tamper import tamper

LIMITS = Limits(chunk_bytes=64 * MIB, read_bytes=64 * MIB)
HANG_SECONDS = 100
ADDRESS_SPACE = 1536 * MIB
"""Beyond what the process uses before the first mutant; half of it is for threads and their arenas."""
REWRITTEN = 8
"""Every so many mutants of files the index is also written, opened again and read."""
INDEXED = ("geo-attributes", "cog-mask", "uint12-pixel", "geo-rotated", "palette")
"""TIFFs whose indexes are damaged."""

Attempt = Callable[[], str]
"""Writes one mutant and uses it; returns `read`, or the kind of an error."""


# --- files ---------------------------------------------------------------------------------------------------------


def jpeg(values: np.ndarray, **options: object) -> bytes:
    return imagecodecs.jpeg8_encode(np.ascontiguousarray(np.squeeze(np.moveaxis(values, 0, -1))), **options)


def streams() -> dict[str, Callable[[], bytes]]:
    """NITF files whose pixels are compressed streams."""
    gray, colours = nitfs.values_of("u8", 1), nitfs.values_of("u8", 3)
    interleaved = np.ascontiguousarray(np.moveaxis(colours, 0, -1))
    pair = {"values": np.tile(gray, 2), "block": (72, 90), "masked": True, "pad": 1}
    made = {
        "C3": {"values": colours, "mode": "P", "streams": [jpeg(colours)]},
        "M3": {"streams": [jpeg(gray)] * 2, **pair},
        "C5": {"values": gray, "streams": [jpeg(gray, lossless=True)]},
        "I1": {"values": np.tile(gray, (1, 2, 2)), "streams": [jpeg(gray)]},
        "C8": {"values": colours, "streams": [imagecodecs.jpeg2k_encode(interleaved, level=0, codecformat="j2k")]},
        "CD": {"values": colours, "streams": [imagecodecs.htj2k_encode(interleaved)]},
    }
    return {
        f"nitf-{coding}": lambda coding=coding, given=given: nitfs.nitf(ImageSegment(coding=coding, **given))
        for coding, given in made.items()
    }


def jpeg2000s() -> dict[str, Callable[[], bytes]]:
    plain = j2ks.made(j2ks.picture(3, "u1", 64, 64), QUALITY="10,30,60", PRECINCTS="{32,32},{16,16}")
    ways = {"progression": {"progression": 3}, "listed": {"progression": 3, "packets": PLT, "cuts": 2},
            "headers": {"progression": 4, "heads": PPM, "markers": SOP}}  # fmt: skip
    boxes = {"CODEC": "JP2", "crs": "EPSG:32631", "transform": Affine(10, 0, 500_000, 0, -10, 5_000_000)}
    return {
        **{f"j2k-{name}": lambda way=way: codestreams.reordered(plain, **way) for name, way in ways.items()},
        "j2k-tiled": lambda: j2ks.made(j2ks.picture(1, "u2", 90, 90), blockxsize=64, blockysize=64),
        "jp2-georeferenced": lambda: j2ks.made(j2ks.picture(1, "u1", 64, 64), **boxes),
    }


def images() -> dict[str, Callable[[], bytes]]:
    """Small files of every format but TIFF."""
    kinds = [(1, 0, 1), (8, 2, 3), (16, 4, 2), (4, 3, 1)]
    flat = ["plain-u16-P-tiles-3", "masked-u12-S-tiles-3", "masked-b1-B-tiles-1", "plain-c64-R-single-3"]
    return {
        **{f"jpeg-{name}": make for name, make in pictures.jpegs().items()},
        **{f"png-{bits}-{colour}": lambda kind=(bits, colour, bands): png(*kind) for bits, colour, bands in kinds},
        **{f"nitf-{name}": lambda name=name: nitfs.nitf(nitfs.case(name)) for name in flat},
        **streams(),
        **jpeg2000s(),
        "dted": lambda: dteds.cell(dteds.heights("mutants", 21, 13)),
        "dted-partial": lambda: dteds.cell(dteds.heights("mutants", 9, 7), stored=(1, 3)),
    }


def png(bits: int, colour: int, bands: int) -> bytes:
    values = tiffs.picture("mutants", "u2", (bands, 23, 29)) >> 16 - bits
    palette = [(b"PLTE", bytes(3 << bits))] if colour == 3 else []
    return pictures.png(values.astype("u2" if bits == 16 else "u1"), bits=bits, colour=colour, chunks=palette,
                        interlaced=bits == 16)  # fmt: skip


def file_attempts(
    folder: Path, data: bytes, damage: Callable[..., Iterator[bytes]]
) -> Callable[..., Iterator[Attempt]]:
    path = folder / "mutant"

    def attempts(seed: int, each: int) -> Iterator[Attempt]:
        for number, mutant in enumerate(damage(data, seed=seed, count=each)):
            yield lambda mutant=mutant, number=number: read_file(path, mutant, rewrite=(seed + number) % REWRITTEN == 0)

    assert read_file(path, data, rewrite=False) == "read"
    return attempts


def read_file(path: Path, data: bytes, *, rewrite: bool) -> str:
    """Index the bytes and read every array: `read`, or the kind of the first error."""
    path.write_bytes(data)
    try:
        index = periplus.index(path, limits=LIMITS)
    except periplus.PeriplusError as error:
        return error.kind
    with index:
        found = read_all(index)
        if rewrite:
            check_rewritten(index, path.with_name("rewritten.parquet"), found)
    errors = [values for values in found.values() if isinstance(values, str)]
    return errors[0] if errors else "read"


def read_all(index: periplus.Index) -> dict[str, "np.ndarray | str"]:
    """The values of every array, or the kind of its error; a window of arrays that are too large."""
    found: dict[str, np.ndarray | str] = {}
    for name, array in index.arrays.items():
        try:
            try:
                values = array[...]
                assert values.shape == array.shape
            except periplus.LimitError:
                values = array[..., :9, :9]
            assert values.dtype == array.dtype
            found[name] = values
        except periplus.PeriplusError as error:
            found[name] = error.kind
    return found


def check_rewritten(index: periplus.Index, target: Path, found: dict[str, "np.ndarray | str"]) -> None:
    """The index read from a file gives what it gave in memory."""
    index.write(target).close()
    with periplus.open(target, limits=LIMITS) as opened:
        assert list(opened) == list(index)
        for name, values in read_all(opened).items():
            before = found[name]
            assert type(values) is type(before), name
            assert values == before if isinstance(values, str) else values.tobytes() == before.tobytes(), name


# --- indexes -------------------------------------------------------------------------------------------------------


def index_attempts(index: Path) -> Callable[..., Iterator[Attempt]]:
    """Mutants of one index: half of them in its document, half anywhere in the file."""
    main = index if index.is_file() else index / "files.parquet"
    valid = main.read_bytes()
    document = json.loads(pq.read_metadata(main).metadata[KEY])

    def attempts(seed: int, each: int) -> Iterator[Attempt]:
        for one in json_mutants(document, seed=seed, count=each - each // 2):
            main.write_bytes(valid)
            tamper(index, document=lambda _, one=one: one)
            yield lambda: use_index(index)
        for data in byte_mutants(valid, seed=seed, count=each // 2):
            main.write_bytes(data)
            yield lambda: use_index(index)
        main.write_bytes(valid)
        yield lambda: use_index(index)

    use_index(index)
    return attempts


def use_index(path: Path) -> str:
    """Open an index and use it in every way: `read`, or the kind of the last error."""
    try:
        index = periplus.open(path, limits=LIMITS)
    except periplus.PeriplusError as error:
        return error.kind
    outcome = "read"
    with index:
        for use in uses(index):
            try:
                use()
            except periplus.PeriplusError as error:
                outcome = error.kind
    return outcome


def uses(index: periplus.Index) -> Iterator[Callable[[], Any]]:
    yield lambda: repr(index)
    for name in index:
        yield lambda name=name: index[name][...]
        yield lambda name=name: index[name][..., :3, :3]
        yield lambda name=name: index.read(array=name, max_size=9)
        yield lambda name=name: index.read(array=name, bbox=(500_000.0, 5_199_900.0, 500_100.0, 5_200_000.0))
        yield lambda name=name: index.select(array=name, footprints=True)
    yield lambda: index.sql("select * from arrays")
    yield lambda: open_dataset(index, {})
    yield lambda: open_dataset(index, {"mask_and_scale": False, "chunks": {}})
    yield lambda: index.sql("select * from chunks limit 3")


def open_dataset(index: periplus.Index, options: dict[str, Any]) -> None:
    with xr.open_dataset(index, engine="periplus", **options) as dataset:
        assert repr(dataset)
        dataset.isel({dim: slice(0, 3) for dim in dataset.dims}).load()


# --- the program ---------------------------------------------------------------------------------------------------


def subjects(kind: str, folder: Path, share: int, shares: int) -> dict[str, Callable[..., Iterator[Attempt]]]:
    """What is damaged, by name: functions of a seed and a number that give the attempts."""
    if kind == "indexes":
        found = {}
        for name in INDEXED[share::shares]:
            (folder / f"{name}.tif").write_bytes(tiffs.case(name).data)
            for form in (f"{name}.parquet", name):
                periplus.index(folder / f"{name}.tif", to=folder / form).close()
                found[form] = index_attempts(folder / form)
        return found
    if kind == "tiffs":
        names = tiffs.names()[share::shares]
        return {name: file_attempts(folder, tiffs.case(name).data, byte_mutants) for name in names}
    made = images()
    return {name: file_attempts(folder, made[name](), image_mutants) for name in list(made)[share::shares]}


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(folder: Path, kind: str, share: int, shares: int, each: int, seed: int) -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "the CRS is ignored")
    faulthandler.enable()
    faulthandler.register(signal.SIGALRM, chain=True)  # prints where it hangs, then the signal ends the process
    chosen = subjects(kind, folder, share, shares)
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    current = os.open(folder / "current", os.O_WRONLY | os.O_CREAT)
    before, kinds, findings = peak(), Counter(), []
    slowest: tuple[float, str] = (0.0, "")
    for place, (name, attempts) in enumerate(chosen.items()):
        subject_seed = seed * 1000 + share + place * shares
        for number, attempt in enumerate(attempts(subject_seed, each)):
            what = f"{name} seed {subject_seed} number {number}"
            os.pwrite(current, what.ljust(120).encode(), 0)
            signal.alarm(HANG_SECONDS)
            start = time.process_time()
            try:
                kinds[attempt()] += 1
            except Exception as error:  # noqa: BLE001 - what is looked for
                frames = traceback.extract_tb(error.__traceback__)[-4:]
                places = " > ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
                findings.append(f"{what}: {error!r:.200} at {places}")
            slowest = max(slowest, (time.process_time() - start, what))
    signal.alarm(0)
    print(json.dumps({"kinds": kinds, "slowest": slowest, "grown": peak() - before, "findings": findings}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
