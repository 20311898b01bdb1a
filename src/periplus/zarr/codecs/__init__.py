"""Codecs of Zarr v3 and filters of Zarr v2 for chunks as they are stored in imagery files."""


def register() -> None:
    """Make zarr-python and numcodecs use our codecs for all their names, also where another library offers them."""
    from periplus.zarr.codecs import v3

    v3.register()
