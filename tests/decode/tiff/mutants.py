"""Decodes seeded mutants of every sample chunk; run as a program, it prints what came of them as JSON."""

import json
import os
import resource
import sys

from periplus.decode import prepare
from periplus.errors import DecodeError
from periplus.limits import GIB, Limits
from periplus.testing.formats import samples
from periplus.testing.mutants import byte_mutants

COUNT = 250 * int(os.environ.get("PERIPLUS_FUZZ", "1"))


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8 * GIB, 8 * GIB))
    results = {}
    for number, name in enumerate(samples.names()):
        print(name, flush=True)
        results[name] = damage(name, number)
    print(json.dumps(results))


def damage(name: str, seed: int) -> dict[str, object]:
    sample = samples.sample(name)
    decode = prepare(sample.codecs, chunks=sample.chunks, dtype=sample.values.dtype, limits=Limits())
    decode(sample.data, valid=sample.chunks)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    decoded, refused, other = 0, 0, []
    for mutant in byte_mutants(sample.data, seed=seed, count=COUNT):
        try:
            found = decode(mutant, valid=sample.chunks)
            decoded += 1
            if found.shape != sample.chunks or found.dtype != sample.values.dtype:
                other.append(f"{found.shape} {found.dtype}")
        except DecodeError:
            refused += 1
        except BaseException as error:  # noqa: BLE001 - whatever it is, the report says so
            other.append(repr(error))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return {"decoded": decoded, "refused": refused, "grown": grown, "other": other[:3]}


if __name__ == "__main__":
    sys.exit(main())
