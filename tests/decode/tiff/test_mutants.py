"""The sample chunks of every compression: exact values, and what truncation, bombs and mutation make of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from periplus.errors import DecodeError
from periplus.testing.formats import samples

NAMES = samples.names()


def made(name, decoder):
    sample = samples.sample(name)
    return sample, decoder(sample.codecs, sample.chunks, sample.values.dtype)


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_encoded(name, decoder):
    sample, decode = made(name, decoder)
    found = decode(sample.data, valid=sample.chunks)
    if sample.lossy:
        assert np.abs(found.astype("f8") - sample.values.astype("f8")).mean() < 4
    else:
        np.testing.assert_array_equal(found, sample.values)
    assert found.dtype == sample.values.dtype


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_cut_off_anywhere_is_an_error_or_still_whole(name, decoder):
    sample, decode = made(name, decoder)
    whole = decode(sample.data, valid=sample.chunks).copy()
    refused = 0
    cuts = sorted({*range(0, len(sample.data), max(1, len(sample.data) // 60)), *range(len(sample.data))[-12:]})
    for cut in cuts:
        try:
            found = decode(sample.data[:cut], valid=sample.chunks)
        except DecodeError:
            refused += 1
        else:
            # Trailers may go missing: checksums, end markers. Pixels may not, but for the last run of a fax.
            if name.startswith("ccitt"):
                found = np.concatenate([found[:, :-1], whole[:, -1:]], axis=1)
            np.testing.assert_array_equal(found, whole, err_msg=f"cut at {cut} of {len(sample.data)}")
    assert refused > 0.8 * len(cuts)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_after_the_stream_do_not_change_its_values(name, decoder):
    sample, decode = made(name, decoder)
    whole = decode(sample.data, valid=sample.chunks).copy()
    try:
        found = decode(sample.data + bytes(9), valid=sample.chunks)
    except DecodeError:
        assert "zstd" in name or "lz4" in name  # whose streams must fill the chunk
    else:
        np.testing.assert_array_equal(found, whole)


@pytest.mark.parametrize("name", NAMES)
def test_empty_and_foreign_bytes_are_decode_errors(name, decoder):
    sample, decode = made(name, decoder)
    foreign = (b"\0", b"\xff" * 40, b"II*\0\x08\0\0\0", bytes(range(256)))
    for data in (b"", *(() if name.startswith("ccitt") else foreign)):  # any bits at all are a fax
        with pytest.raises(DecodeError):
            decode(data, valid=sample.chunks)


@pytest.mark.fuzz
def test_mutants_give_values_or_decode_errors_and_never_a_crash():
    """In a process of its own with bounded memory: a native crash fails this test and not the whole run.

    Fresh memory is filled with rubbish, so that decoders that read what they never wrote show it.
    """
    script = Path(__file__).with_name("mutants.py")
    dirty = {**os.environ, "MALLOC_PERTURB_": "165"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=dirty)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-300:]} {done.stderr[-2000:]}"
    results = json.loads(done.stdout.splitlines()[-1])
    assert set(results) == set(NAMES)
    for name, result in results.items():
        assert result["other"] == [], name
        assert result["refused"] > 0, name
    assert max(result["grown"] for result in results.values()) < 64 << 20
