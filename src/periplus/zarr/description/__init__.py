"""An index described as Zarr: metadata documents, codecs, labels; every Zarr exit begins here."""
