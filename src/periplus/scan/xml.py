"""Untrusted XML in the metadata of files: entities and references to other files are refused."""

from __future__ import annotations

from typing import Any

from periplus.errors import FormatError


def parse_xml(text: str | bytes, what: str) -> Any:
    """The root element, None where the text is not XML; FormatError for what XML may do beyond holding data."""
    from xml.etree.ElementTree import ParseError

    import defusedxml.ElementTree as ElementTree
    from defusedxml.common import DefusedXmlException

    try:
        return ElementTree.fromstring(text)
    except ParseError:
        return None
    except (DefusedXmlException, ValueError, LookupError) as error:
        raise FormatError(f"{what} contains forbidden XML: {error}") from None
