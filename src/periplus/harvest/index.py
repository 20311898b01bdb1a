"""`index_into`: from URLs to a table; `harvest`: from URLs to the arrays of each file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from numbers import Integral
from os import PathLike, fspath
from typing import Any

from periplus.fetch import Fetch
from periplus.harvest.inputs import expand
from periplus.harvest.options import check_options
from periplus.harvest.reader import InputReader, Progress
from periplus.harvest.run import IndexRun
from periplus.harvest.scanning.drive import Harvested
from periplus.harvest.scanning.stream import harvest_inputs
from periplus.harvest.stac import Assets
from periplus.harvest.summary import Summary
from periplus.limits import Limits
from periplus.model import Source
from periplus.table import Table

REFRESH = ("check", "never", "always")
FORMS = ("flat", "dataset", "duckdb")


def index_into(
    urls: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    to: str | PathLike[str] | None = None,
    fetch: Fetch,
    arrange: str = "auto",
    limits: Limits | None = None,
    form: str | None = None,
    dim: str | None = None,
    pattern: str | None = None,
    coordinate: str = "auto",
    duplicates: str = "error",
    order: str = "given",
    skip_misfits: bool = False,
    assets: Assets = None,
    refresh: str = "check",
    append: bool = False,
    concurrency: int = 256,
    sidecars: bool = True,
    checksums: bool = False,
    progress: Progress | None = None,
) -> tuple[Table, Summary]:
    """Index files into memory, or with `to` into an index that is written there and opened.

    `arrange` is `collect`, `stack`, `mosaic` or `auto`. `pattern` reads the time of each file from its name, and the
    labels of a stack; `dim` and `coordinate` apply to `stack`, `duplicates` to `stack` and `mosaic`, `order` to
    `mosaic`, and `skip_misfits` to files that do not fit or do not match the pattern. An option that has no effect is a
    ValueError. `assets` chooses among the assets of STAC items; `progress` is called with (done, total or None,
    failed).

    Some formats have sidecars: reduced resolutions of NITF (`image.ntf.r1`, …), world files of JPEG, PNG and JPEG 2000.
    Looking for them costs one or a few requests for each such file; `sidecars=False` does not look for them. TIFF and
    DTED have none.

    With `checksums`, the data of all files are read once, and the index records a checksum for each byte range.

    With `to`, files that are in the index there, or in the journal of an interrupted run, are not read again: with
    `refresh="check"` if a listing or a HEAD request shows that they are unchanged, with `"never"` without a check;
    `"always"` reads all files again. The index then contains exactly the files given; with `append`, also those it had,
    and options of the arrangement that are not given (`auto`, None, `error`, `given`) are those of the index.
    """
    began = time.monotonic()
    given = [fspath(urls)] if isinstance(urls, str | PathLike) else [fspath(url) for url in urls]
    if refresh not in REFRESH:
        raise ValueError(f"refresh is one of {', '.join(REFRESH)}, not {refresh!r}")
    options: dict[str, Any] = {
        "dim": dim,
        "pattern": pattern,
        "coordinate": coordinate,
        "duplicates": duplicates,
        "skip_misfits": skip_misfits,
    }
    check_options(arrange, order=order, append=append, **options)
    _check_target(to, form=form, refresh=refresh, append=append, concurrency=concurrency)
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is a function of (done, total, failed), not {progress!r}")
    if order != "given":
        options["order"] = order
    limits = limits or Limits()
    reader = InputReader(
        given,
        fetch,
        limits,
        assets=assets,
        concurrency=concurrency,
        look_for_sidecars=sidecars,
        checksums=checksums,
        progress=progress,
    )
    run = IndexRun(reader, fetch, limits, kind=arrange, options=options)
    table = run.in_memory() if to is None else run.into(fspath(to), form=form, refresh=refresh, append=append)
    return table, replace(run.summary(table), seconds=time.monotonic() - began)


def harvest(
    urls: Sequence[str],
    fetch: Fetch,
    *,
    limits: Limits | None = None,
    known: Callable[[str], Source | None] = lambda _: None,
    assets: Assets = None,
    sidecars: bool = True,
    progress: Progress | None = None,
) -> Iterator[Harvested]:
    """Files in the order they finish, each with its arrays or its error; `known` files are marked and not read."""
    inputs = expand(urls, fetch, assets=assets)
    limits = limits or Limits()
    for batch in harvest_inputs(
        inputs, fetch, limits=limits, known=known, look_for_sidecars=sidecars, progress=progress
    ):
        yield from batch


def _check_target(to: Any, *, form: str | None, refresh: str, append: bool, concurrency: int) -> None:
    """Raise for options that only have an effect on an index that is written."""
    if form not in (None, *FORMS):
        raise ValueError(f"form is one of {', '.join(FORMS)}, not {form!r}")
    for name, given in (("append", append), ("refresh", refresh != "check"), ("form", form is not None)):
        if given and to is None:
            raise ValueError(f"{name}= has no effect without to=, where the index is written")
    if not isinstance(concurrency, Integral) or isinstance(concurrency, bool):
        raise TypeError(f"concurrency is a number of headers, not {concurrency!r}")
    if concurrency < 1:
        raise ValueError(f"concurrency is at least 1, not {concurrency}")
