from periplus.testing.fixtures import server

__all__ = ["server"]
