"""JPEG 2000 codestreams as pure arithmetic: what scanners and decoders both must know of markers and packets."""
