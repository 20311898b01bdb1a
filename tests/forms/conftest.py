from periplus.testing.fixtures import s3, server

__all__ = ["s3", "server"]
