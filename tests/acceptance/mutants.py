"""Indexes and reads seeded mutants of images through the public names; run as a program, it reports as JSON.

    python mutants.py FOLDER [pictures:]SHARE/SHARES EACH SEED [CASE NUMBER]

It takes every SHARES-th flavour, of TIFF or of all other formats, and EACH mutants of it; CASE and NUMBER say where to
go on. What it is at stands in FOLDER/at, so that whoever started it knows which mutant killed it.
"""

import faulthandler
import json
import os
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import imagecodecs
import numpy as np
from affine import Affine

import periplus
from periplus.limits import MIB, Limits
from periplus.parse.jpeg2000.segments import PLT, PPM, SOP
from periplus.testing.formats import dted as dteds
from periplus.testing.formats import jpeg2000 as j2ks
from periplus.testing.formats import jpeg2000_forge as j2kforge
from periplus.testing.formats import nitf as nitfs
from periplus.testing.formats import pictures
from periplus.testing.formats import tiff as tiffs
from periplus.testing.formats.nitf import Picture
from periplus.testing.mutants import picture_mutants
from periplus.testing.mutate import mutants

LIMITS = Limits(chunk_bytes=64 * MIB, read_bytes=64 * MIB)
HANG_SECONDS = 20
ROOM = 1024 * MIB
"""Address space beyond what the process has after a first round; half of it is for threads and their arenas."""
REWRITTEN = 8
"""Every so many mutants the index is also written, opened again and read."""


def jpeg(values: np.ndarray, **options: object) -> bytes:
    return imagecodecs.jpeg8_encode(np.ascontiguousarray(np.squeeze(np.moveaxis(values, 0, -1))), **options)


def streams() -> dict[str, Callable[[], bytes]]:
    """NITF whose pixels are streams."""
    gray, colours = nitfs.values_of("u8", 1), nitfs.values_of("u8", 3)
    turned = np.ascontiguousarray(np.moveaxis(colours, 0, -1))
    pair = {"values": np.tile(gray, 2), "block": (72, 90), "masked": True, "pad": 1}
    made = {
        "C3": {"values": colours, "mode": "P", "streams": [jpeg(colours)]},
        "M3": {"streams": [jpeg(gray)] * 2, **pair},
        "C5": {"values": gray, "streams": [jpeg(gray, lossless=True)]},
        "I1": {"values": np.tile(gray, (1, 2, 2)), "streams": [jpeg(gray)]},
        "C8": {"values": colours, "streams": [imagecodecs.jpeg2k_encode(turned, level=0, codecformat="j2k")]},
        "CD": {"values": colours, "streams": [imagecodecs.htj2k_encode(turned)]},
    }
    return {
        f"nitf-{coding}": lambda coding=coding, given=given: nitfs.nitf(Picture(coding=coding, **given))
        for coding, given in made.items()
    }


def codestreams() -> dict[str, Callable[[], bytes]]:
    plain = j2ks.made(j2ks.picture(3, "u1", 64, 64), QUALITY="10,30,60", PRECINCTS="{32,32},{16,16}")
    ways = {"progression": {"progression": 3}, "listed": {"progression": 3, "packets": PLT, "cuts": 2},
            "headers": {"progression": 4, "heads": PPM, "markers": SOP}}  # fmt: skip
    boxes = {"CODEC": "JP2", "crs": "EPSG:32631", "transform": Affine(10, 0, 500_000, 0, -10, 5_000_000)}
    return {
        **{f"j2k-{name}": lambda way=way: j2kforge.forged(plain, **way) for name, way in ways.items()},
        "j2k-tiled": lambda: j2ks.made(j2ks.picture(1, "u2", 90, 90), blockxsize=64, blockysize=64),
        "jp2-placed": lambda: j2ks.made(j2ks.picture(1, "u1", 64, 64), **boxes),
    }


def others() -> dict[str, Callable[[], bytes]]:
    """Small files of every format but TIFF."""
    kinds = [(1, 0, 1), (8, 2, 3), (16, 4, 2), (4, 3, 1)]
    flat = ["plain-u16-P-tiles-3", "masked-u12-S-tiles-3", "masked-b1-B-tiles-1", "plain-c64-R-single-3"]
    return {
        **{f"jpeg-{name}": make for name, make in pictures.jpegs().items()},
        **{f"png-{bits}-{colour}": lambda kind=(bits, colour, bands): png(*kind) for bits, colour, bands in kinds},
        **{f"nitf-{name}": lambda name=name: nitfs.nitf(nitfs.case(name)) for name in flat},
        **streams(),
        **codestreams(),
        "dted": lambda: dteds.cell(dteds.heights("mutants", 21, 13)),
        "dted-partial": lambda: dteds.cell(dteds.heights("mutants", 9, 7), stored=(1, 3)),
    }


def png(bits: int, colour: int, bands: int) -> bytes:
    values = tiffs.picture("mutants", "u2", (bands, 23, 29)) >> 16 - bits
    palette = [(b"PLTE", bytes(3 << bits))] if colour == 3 else []
    return pictures.png(values.astype("u2" if bits == 16 else "u1"), bits=bits, colour=colour, chunks=palette,
                        interlaced=bits == 16)  # fmt: skip


Flavours = dict[str, Callable[[], bytes]]


def flavours(which: str) -> tuple[Flavours, Callable[..., Iterator[bytes]]]:
    """Makers of files by name, and what damages them."""
    if which == "pictures":
        return others(), picture_mutants
    return {name: lambda name=name: tiffs.case(name).data for name in tiffs.names()}, mutants


def read_all(index: periplus.Index) -> dict[str, "np.ndarray | str"]:
    """Every array, or the kind of error it gave; too large ones by a window."""
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


def attempt(path: Path, data: bytes, number: int) -> str:
    """What came of one mutant: `read`, or the kind of the first error."""
    path.write_bytes(data)
    try:
        index = periplus.index(path, limits=LIMITS)
    except periplus.PeriplusError as error:
        return error.kind
    with index:
        found = read_all(index)
        if number % REWRITTEN == 0:
            again(index, path.with_name("again.parquet"), found)
    errors = [values for values in found.values() if isinstance(values, str)]
    return errors[0] if errors else "read"


def again(index: periplus.Index, target: Path, found: dict[str, "np.ndarray | str"]) -> None:
    """The index at rest says what it said in memory."""
    index.write(target).close()
    with periplus.open(target, limits=LIMITS) as opened:
        assert list(opened) == list(index)
        for name, values in read_all(opened).items():
            same = found[name]
            assert type(values) is type(same), name
            assert values == same if isinstance(values, str) else values.tobytes() == same.tobytes(), name


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main(folder: Path, share: str, each: int, seed: int, case: int = 0, number: int = 0) -> None:
    warnings.simplefilter("error")
    faulthandler.enable()
    faulthandler.register(signal.SIGALRM, chain=True)  # says where, then the signal ends the process
    which, _, share = share.rpartition(":")
    part, parts = map(int, share.split("/"))
    makers, damage = flavours(which)
    files = {name: makers[name]() for name in list(makers)[part::parts]}
    names = list(files)
    path = folder / "mutant"
    at = os.open(folder / "at", os.O_WRONLY | os.O_CREAT)
    for name in names:
        assert attempt(path, files[name], 0) == "read", name
    limit = space() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    before, kinds = peak(), Counter()
    slowest: tuple[float, str] = (0.0, "")
    findings: list[str] = []
    for place in range(case, len(names)):
        name = names[place]
        identity = seed * 1000 + list(makers).index(name)
        first = number if place == case else 0
        for count, mutant in enumerate(damage(files[name], seed=identity, count=each)):
            if count < first:
                continue
            os.pwrite(at, f"{place} {count} {name} seed {identity}".ljust(120).encode(), 0)
            signal.alarm(HANG_SECONDS)
            start = time.process_time()
            try:
                kinds[attempt(path, mutant, count)] += 1
            except Exception as error:  # noqa: BLE001 - which is what is looked for
                trace = error.__traceback__
                while trace.tb_next is not None:
                    trace = trace.tb_next
                place_of = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
                findings.append(f"{name} seed {identity} number {count}: {error!r} at {place_of}")
            spent = time.process_time() - start
            if spent > slowest[0]:
                slowest = (spent, f"{name} seed {identity} number {count}")
    signal.alarm(0)
    report = {"kinds": kinds, "slowest": slowest, "grown": peak() - before, "findings": findings}
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
