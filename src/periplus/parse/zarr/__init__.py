"""The one reader of Zarr metadata documents, versions 2 and 3. Pure; every integer of a document is checked.

    nodes = nodes_of({"a/.zarray": {...}, "a/.zattrs": {...}, ".zmetadata": {...}})
    nodes["a"].parse(limits)  # ArrayMetadata or GroupMetadata

`nodes_of` sorts documents by node and adds those that are consolidated; `NodeDocuments.parse` checks the documents of
one node. Both versions give the same description: codecs are one list in the style of version 3, names of dimensions
come from `dimension_names` or from `_ARRAY_DIMENSIONS`. What the attributes mean is the job of `conventions`, to which
`conventions.node.node_of` passes a parsed node; which codecs can be decoded is the job of `zarr.codecs`.
"""

from periplus.parse.zarr.documents import NodeDocuments, consolidated_in, nodes_of
from periplus.parse.zarr.metadata import ArrayMetadata, ChunkKeys, GroupMetadata

__all__ = ["ArrayMetadata", "ChunkKeys", "GroupMetadata", "NodeDocuments", "consolidated_in", "nodes_of"]
