"""Values at points, through all times and bands: each stored chunk is read once, many at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from periplus.errors import FormatError
from periplus.limits import Limits
from periplus.model import Array, BBox, pyramid_of
from periplus.model.affine import position
from periplus.policy import is_local
from periplus.read.choose import Bands, Images, band_key, nodata_of, pick, time_key
from periplus.read.plan import Progress, select_outer
from periplus.read.reader import read_array
from periplus.read.window import axes, crs_of, transform_of
from periplus.table.query.boxes import Reproject
from periplus.table.query.footprint import WORLD

if TYPE_CHECKING:
    from periplus.fetch import Fetch
    from periplus.table import Table

AT_ONCE = 16
"""Chunks of remote files that are read at once; each is read through all times."""
ReprojectPoints: TypeAlias = Callable[[NDArray[np.float64], str, str], NDArray[np.float64]]
"""(points, their CRS, another CRS) -> points, of which those without a place there are infinite."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointRequest:
    """What is sampled."""

    points: NDArray[np.float64]
    """(n, 2): x and y."""
    crs: str | None
    time: Any
    bands: Bands | None


def points_of(points: Any) -> tuple[NDArray[np.float64], Any]:
    """(n, 2) coordinates, and the CRS of a GeoDataFrame or GeoSeries; ValueError for what is no list of points."""
    geometry = getattr(points, "geometry", None)
    try:
        pairs = points if geometry is None else np.stack([geometry.x, geometry.y], axis=1)
        found = np.asarray(pairs, np.float64)
    except (TypeError, ValueError, AttributeError):
        found = np.empty(0)
    if found.shape == (2,):
        found = found[None]
    if found.ndim != 2 or found.shape[1] != 2 or not len(found) or not np.isfinite(found).all():
        raise ValueError("points are pairs of finite numbers x, y, or a GeoDataFrame of points")
    return found, getattr(points, "crs", None)


def sample_points(
    table: Table,
    fetch: Fetch,
    request: PointRequest,
    *,
    array: str | None,
    limits: Limits,
    progress: Progress | None = None,
    reproject_bbox: Reproject,
    reproject_points: ReprojectPoints,
) -> dict[str, Any]:
    """Columns of values, as masked arrays: a row for each point and step of the image, or of each image at the point.

    `array` is an image, as for `read_raster`; without it, the only image of the index, or all images at each point.
    """
    images = Images(table.catalog) if array is None else ()
    several = len(images) > 1 and "data" not in images
    if several:
        names = _images_at(table, images, request, reproject_bbox)
        chosen = [pick(table.catalog, name) for name in names]
        # Images that only control points or RPCs locate have no pixel for a point.
        chosen = [(levels, image) for levels, image in chosen if transform_of(levels, image) is not None]
    else:
        chosen = [pick(table.catalog, array)]
    jobs = [_Sampling(table, levels, image, request, reproject_points, several) for levels, image in chosen]
    jobs = [job for job in jobs if len(job.rows) or not several]
    size = sum(job.nbytes for job in jobs)
    limits.check("the values at these points, in bytes,", size, limits.read_bytes)
    _read_all(table, fetch, jobs, limits, progress)
    return _joined([job.columns() for job in jobs], several)


def _images_at(table: Table, images: Collection[str], request: PointRequest, reproject: Reproject) -> list[str]:
    """Images in the box around all points, and in the time."""
    low, high = request.points.min(axis=0).tolist(), request.points.max(axis=0).tolist()
    box: BBox = (low[0], low[1], high[0], high[1])
    rows = table.select(level=0, bbox=box, crs=request.crs, time=request.time, reproject=reproject)
    met = dict.fromkeys(pyramid_of(name, 0) for name in rows.column("array").unique().to_pylist())
    return [name for name in met if name in images]


class _Sampling:
    """The points in one image."""

    def __init__(
        self,
        table: Table,
        levels: list[Array],
        image: Array,
        request: PointRequest,
        reproject: ReprojectPoints,
        several: bool,
    ) -> None:
        if image.dtype.kind == "c":
            raise ValueError(f"{image.name} has complex values, for which a table has no type; use read")
        self.image, self._points = image, request.points
        self._y, self._x = axes(image)
        self.keys: list[Any] = [slice(None)] * image.ndim
        time, moment = request.time, None
        if several and not any(one.dtype.kind == "M" for one in _labels(table, image).values()):
            time, moment = None, _file_time(table, image)  # the image was selected by the time of its file
        self._labels = time_key(table.catalog, image, time, self.keys)
        self._moment = moment
        names, chosen = band_key(image, request.bands, self.keys)
        bands = image.dims.index("bands") if "bands" in image.dims else None
        if bands is not None and isinstance(self.keys[bands], int):
            self.keys[bands] = slice(self.keys[bands], self.keys[bands] + 1)
        self._bands = bands
        self._numbers = np.arange(image.shape[bands])[self.keys[bands]].tolist() if bands is not None else [0]
        self._names, self._nodata = names, nodata_of(image, chosen)
        self._locate(levels, request, reproject, several)
        self._steps = [d for d in range(image.ndim) if d not in (self._y, self._x, bands)]
        self._shape = tuple(
            len(range(image.shape[d])[self.keys[d]]) if isinstance(self.keys[d], slice) else len(self.keys[d])
            for d in self._steps
        )
        self._values: NDArray[Any] | None = None

    def _locate(self, levels: list[Array], request: PointRequest, reproject: ReprojectPoints, several: bool) -> None:
        """Pixels of the points, and which of them are in the image."""
        transform, own = transform_of(levels, self.image), crs_of(levels, self.image)
        if transform is None:
            raise FormatError(f"{self.image.name} has no transform, so no pixel can be found for a point")
        points = request.points
        if request.crs is not None and request.crs != own:
            if own is None:
                raise FormatError(f"{self.image.name} has no CRS, so points in {request.crs} cannot be converted")
            points = reproject(points, request.crs, own)
        rows, columns = self.image.shape[self._y], self.image.shape[self._x]
        row = column = np.full(len(points), -1.0)
        inside = np.zeros(len(points), bool)
        for turn in (0.0, 360.0, -360.0) if own == WORLD else (0.0,):
            with np.errstate(all="ignore"):
                here = [np.floor(one) for one in position(transform, points[:, 0] + turn, points[:, 1])]  # type: ignore[arg-type]
                fits = (here[0] >= 0) & (here[0] < rows) & (here[1] >= 0) & (here[1] < columns) & ~inside
            row, column = np.where(fits, here[0], row), np.where(fits, here[1], column)
            inside |= fits
        self._inside = np.flatnonzero(inside)
        self._shown = self._inside if several else np.arange(len(points))
        self.rows, self._columns = row[inside].astype(np.int64), column[inside].astype(np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return len(self._shown) * math.prod(self._shape) * len(self._numbers) * max(self.image.dtype.itemsize, 8)

    def groups(self) -> list[NDArray[np.intp]]:
        """Points that are in the same chunk."""
        owners = [
            np.searchsorted(self.image.starts(d), pixels, side="right") - 1
            for d, pixels in ((self._y, self.rows), (self._x, self._columns))
        ]
        _, group = np.unique(np.stack(owners), axis=1, return_inverse=True)
        order = np.argsort(group.reshape(-1), kind="stable")
        return [part for part in np.split(order, np.flatnonzero(np.diff(group.reshape(-1)[order])) + 1) if len(part)]

    def read(self, table: Table, fetch: Fetch, points: NDArray[np.intp], limits: Limits) -> None:
        """Read the pixels of points in one chunk."""
        rows, row = np.unique(self.rows[points], return_inverse=True)
        columns, column = np.unique(self._columns[points], return_inverse=True)
        keys = list(self.keys)
        keys[self._y], keys[self._x] = rows.tolist(), columns.tolist()
        values = np.asarray(
            read_array(table, fetch, self.image, select_outer(tuple(keys), self.image.shape), limits=limits)
        )
        order = [self._y, self._x, *self._steps, *([] if self._bands is None else [self._bands])]
        found = values.transpose(order)[row.reshape(-1), column.reshape(-1)]
        self._out[points] = found.reshape(len(points), *self._shape, len(self._numbers))

    @property
    def _out(self) -> NDArray[Any]:
        if self._values is None:
            self._values = np.empty((len(self.rows), *self._shape, len(self._numbers)), self.image.dtype)
        return self._values

    def columns(self) -> dict[str, Any]:
        """A row for each point and step."""
        count, steps = len(self._shown), math.prod(self._shape)
        found: dict[str, Any] = {"point": np.repeat(self._shown, steps)}
        found |= {name: np.repeat(self._points[self._shown, k], steps) for k, name in enumerate("xy")}
        found["array"] = [self.image.name] * (count * steps)
        if self._moment is not None:
            found["time"] = np.full(count * steps, self._moment)
        for k, d in enumerate(self._steps):
            dim = self.image.dims[d]
            labels = np.asarray(self._labels.get(dim, np.arange(self.image.shape[d])[self.keys[d]]))
            shape = [-1 if j == k else 1 for j in range(len(self._steps))]
            along = np.broadcast_to(labels.reshape(shape), self._shape).reshape(-1)
            found[dim] = np.tile(along, count)
        return found | self._band_columns(count)

    def _band_columns(self, count: int) -> dict[str, Any]:
        shape = (count, *self._shape, len(self._numbers))
        values, outside = np.zeros(shape, self.image.dtype), np.ones(shape, bool)
        known = np.searchsorted(self._shown, self._inside)
        values[known], outside[known] = self._out, False
        taken = {"point", "x", "y", "array", "time", *self.image.dims}
        named = len(set(self._names)) == len(self._names) == len(self._numbers) and all(self._names)
        named = named and taken.isdisjoint(self._names)
        nodata = self._nodata if isinstance(self._nodata, list) else [self._nodata] * len(self._numbers)
        plain = self.image.name.rpartition("/")[2]
        columns = {}
        for k, number in enumerate(self._numbers):
            column, mask = values[..., k].reshape(-1), outside[..., k].reshape(-1)
            if nodata[k] is not None:
                mask = mask | (np.isnan(column) if nodata[k] != nodata[k] else column == nodata[k])
            unnamed = plain if self._bands is None else f"band_{number + 1}"
            columns[self._names[k] if named else unnamed] = np.ma.MaskedArray(column, mask)
        return columns


def _labels(table: Table, image: Array) -> Mapping[str, NDArray[Any]]:
    known = table.catalog.coordinates_of(image)
    return {name: np.asarray(one.values) for name, one in known.items()}


def _file_time(table: Table, image: Array) -> np.datetime64:
    """When the data of an image of a collection were taken."""
    refs = table.refs(image.name, [(0, 1)] * image.ndim)
    file = -1 if not len(refs) else 0 if refs.file is None else int(refs.file[0])
    return table.files.datetime[file] if file >= 0 else np.datetime64("NaT", "us")


def _read_all(table: Table, fetch: Fetch, jobs: Sequence[_Sampling], limits: Limits, progress: Progress | None) -> None:
    """Read the chunks of all images; several at once where files are remote."""
    tasks = [(job, group) for job in jobs for group in job.groups()]
    done = 0

    def finished() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(tasks))

    if len(tasks) < 2 or all(map(is_local, table.files.path)):
        for job, group in tasks:
            job.read(table, fetch, group, limits)
            finished()
        return
    for job in jobs:
        _ = job._out  # made here, not by the first thread
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="periplus-sample") as pool:
        futures = [pool.submit(job.read, table, fetch, group, limits) for job, group in tasks]
        try:
            for future in as_completed(futures):
                future.result()
                finished()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _joined(parts: Sequence[dict[str, Any]], several: bool) -> dict[str, Any]:
    """The columns of all images, in the order of points."""
    if not parts:
        return {"point": np.empty(0, np.int64), "x": np.empty(0), "y": np.empty(0)}
    names = dict.fromkeys(name for part in parts for name in part)
    if not several:
        names.pop("array", None)
    joined: dict[str, Any] = {}
    for name in names:
        dtypes = [np.asarray(part[name]).dtype for part in parts if name in part]
        dtype = np.result_type(*dtypes) if dtypes[0].kind in "biuf" else dtypes[0]
        if dtype.kind == "f" and all(one.kind in "biu" for one in dtypes):
            raise ValueError(f"no type holds the {name} of all images exactly; sample those of one type, by array=")
        held = [part.get(name, np.ma.MaskedArray(np.zeros(len(part["point"]), dtype), True)) for part in parts]
        masks = [np.broadcast_to(np.ma.getmaskarray(np.ma.asarray(one)), len(one)) for one in held]
        joined[name] = np.ma.MaskedArray(np.concatenate([np.ma.getdata(one) for one in held]), np.concatenate(masks))
    if several and parts:
        order = np.argsort(joined["point"].data, kind="stable")
        joined = {name: values[order] for name, values in joined.items()}
    return joined
