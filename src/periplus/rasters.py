"""Raster: a window as users hold it, with its picture and its way to xarray."""

from __future__ import annotations

import base64
from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from periplus.errors import guided
from periplus.pictures import encode, paint, percentiles, stretch
from periplus.read.raster import RasterWindow

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

SHOWN_PIXELS = 320
"""Longest side of a picture in a notebook."""


class Raster(RasterWindow):
    """Pixels as stored, with their georeference and metadata."""

    __slots__ = ()

    @classmethod
    def of(cls, window: RasterWindow) -> Raster:
        """The same window."""
        return cls(**{one.name: getattr(window, one.name) for one in fields(window)})

    def to_xarray(self, *, mask_and_scale: bool = True) -> xr.DataArray:
        """The window as a DataArray: as the engine `periplus` gives it, with coordinates, CRS and transform.

        Nodata is NaN, and scale and offset are applied; with `mask_and_scale=False` values are as stored.
        """
        with guided():
            from periplus.engine.index.window import data_array

        return data_array(self, mask_and_scale=mask_and_scale)

    def picture(self) -> NDArray[np.uint8]:
        """(y, x, channels) for the eye: the first three bands, or the only one, from the 2nd to the 98th percentile."""
        bands = self._bands()
        nodata = self.nodata if isinstance(self.nodata, list) else [self.nodata] * len(bands)
        colours = self.attrs.get("colormap")
        if colours and len(bands) == 1 and bands.dtype.kind in "iu":
            return paint(bands[0], colours, nodata=nodata[0])
        count = 3 if len(bands) >= 3 else 1
        image, _ = stretch(bands[:count], nodata=nodata[:count])
        if count == 1 and self.attrs.get("photometric") == "min_is_white":
            return np.concatenate([255 - image[..., :1], image[..., 1:]], axis=2)
        return image

    def plot(self, ax: Axes | None = None, **options: Any) -> Axes:
        """Draw the window with matplotlib, in the coordinates of its CRS; `options` are those of `Axes.imshow`.

        Three or more bands are drawn as red, green and blue; one band with a colour bar.
        """
        with guided():
            import matplotlib.pyplot as plt

        bands = self._bands()
        if ax is None:
            _, ax = plt.subplots()
        if self.transform is not None and self.transform[1] == self.transform[3] == 0:
            a, _, x, _, e, y = self.transform
            options = {"extent": (x, x + a * bands.shape[2], y + e * bands.shape[1], y), **options}
        if len(bands) >= 3 or self.attrs.get("colormap"):
            image = self.picture()
            ax.imshow(image[..., 0] if image.shape[2] == 1 else image, **options)
        else:
            values = np.ma.masked_invalid(self.masked().reshape(bands.shape)[0])
            low, high = percentiles(values.compressed())
            shown = ax.imshow(values, **{"vmin": low, "vmax": high, **options})
            ax.figure.colorbar(shown, ax=ax, label=str(self.attrs.get("units", "")))
        ax.set_title(self.array)
        return ax

    def _bands(self) -> NDArray[Any]:
        """(bands, y, x) of one image; ValueError where the window has several."""
        values, dims = self.values, list(self.dims)
        if values.dtype.kind == "c":
            raise ValueError("complex values have no picture")
        for axis in reversed(range(len(dims) - 2)):
            if dims[axis] != "bands":
                if values.shape[axis] != 1:
                    raise ValueError(f"a picture shows one image, not {values.shape[axis]} along {dims[axis]}")
                values = values.squeeze(axis)
                del dims[axis]
        return values if dims[0] == "bands" else values[None]

    def _repr_html_(self) -> str:
        return f"<div><pre>{escape(repr(self))}</pre>{self.to_html_image()}</div>"

    def to_html_image(self) -> str:
        """The picture as an HTML element; empty where the window has none."""
        step = max(1, -(-max(self.values.shape[-2:], default=1) // SHOWN_PIXELS))
        try:
            image = self.picture()[::step, ::step]
        except ValueError:
            return ""
        data = base64.b64encode(encode(np.ascontiguousarray(image))).decode() if image.size else ""
        return f'<img alt="the pixels" src="data:image/png;base64,{data}">' if data else ""
