"""JPEG 2000 codestreams: marker segments and the order of packets, for scanning and decoding."""
