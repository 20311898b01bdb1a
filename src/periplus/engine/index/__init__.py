"""The xarray engine `periplus`: an index as Dataset or DataTree."""
