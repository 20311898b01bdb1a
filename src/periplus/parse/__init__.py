"""Pure parsers of headers and documents that several packages need."""
