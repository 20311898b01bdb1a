"""Servers for tests: HTTP and S3, with faults on demand."""
