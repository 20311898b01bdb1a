"""Codec lists: what is known, refused, cached, extended by leading dimensions, and shared between threads."""

import pickle
import threading
import zlib

import numpy as np
import pytest

from periplus.decode import CODECS, prepare
from periplus.errors import DecodeError, FormatError, LimitError
from periplus.limits import Limits
from periplus.testing.formats import samples
from periplus.testing.formats.tiff import picture

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
CHUNKS = (3, 8, 10)


def tile(compression=8, **changes):
    return samples.tiff_tile(np.zeros(CHUNKS, "u2"), compression, **changes)


@pytest.mark.parametrize(
    "codecs",
    [
        [],
        ["pickle"],
        [{"name": "pickle"}],
        [{"name": "numcodecs.pickle"}],
        [{"name": "os.system", "configuration": {"command": "true"}}],
        [{"name": "https://example.com/codec"}],
        [{"name": None}],
        [{"configuration": {}}],
        [42],
        [{"name": "bytes", "configuration": [1]}],
        [{"name": "bytes", "configuration": {"endian": "middle"}}],
        [{"name": "bytes"}],
        [{"name": "zstd"}],
        [{"name": "transpose", "configuration": {"order": [1, 2, 0]}}],
        [{"name": "transpose", "configuration": {"order": [0, 0, 1]}}, LITTLE],
        [{"name": "transpose", "configuration": {"order": "F"}}, LITTLE],
        [{"name": "transpose", "configuration": {"order": [[1], 0, 2]}}, LITTLE],
        [LITTLE, LITTLE],
        [LITTLE, {"name": "numcodecs.shuffle", "configuration": {"elementsize": -1}}],
        [LITTLE] * 17,
        [tile(), {"name": "zstd"}],
        [tile(compression=99999)],
        [tile(compression=32771)],
        [tile(compression=34934)],
        [tile(compression="lzw")],
        [tile(compression=None)],
        [tile(bits_per_sample=0)],
        [tile(bits_per_sample=8)],
        [tile(bits_per_sample=True)],
        [tile(samples_per_pixel=4)],
        [tile(tile_width=9)],
        [tile(tile_height=0)],
        [tile(predictor=3)],
        [tile(predictor=34892)],
        [tile(sample_format=9)],
        [tile(byte_order="middle")],
        [tile(fill_order=3)],
        [tile(planar_config=0)],
        [tile(jpeg_tables="not base64!")],
        [tile(jpeg_tables=17)],
        [tile(photometric=6)],
        [tile(ycbcr_subsampling=[3, 3])],
        [tile(reference_black_white=[0, 1])],
        [tile(reference_black_white=[float("nan")] * 6)],
        [tile(compression=34887, lerc_parameters=[4, 9])],
        [tile(compression=50001)],
        [tile(compression=4)],
    ],
)
def test_unknown_codecs_and_settings_are_format_errors_before_any_byte(codecs):
    with pytest.raises(FormatError):
        prepare(tuple(codecs), chunks=CHUNKS, dtype=np.dtype("u2"), limits=Limits())


def test_an_unknown_codec_is_named():
    with pytest.raises(FormatError, match="imaginary"):
        prepare(({"name": "imaginary"},), chunks=CHUNKS, dtype=np.dtype("u2"), limits=Limits())
    assert {"bytes", "transpose", "zstd", "numcodecs.zlib", "periplus.unpack", samples.TIFF_TILE} <= CODECS


def test_chunks_and_tiles_over_the_limit_are_refused_before_any_byte():
    small = Limits(chunk_bytes=1000)
    with pytest.raises(LimitError):
        prepare((LITTLE,), chunks=(1, 40, 40), dtype=np.dtype("u2"), limits=small)
    with pytest.raises(LimitError):
        prepare((tile(tile_width=100, tile_height=100),), chunks=CHUNKS, dtype=np.dtype("u2"), limits=small)
    prepare((tile(),), chunks=CHUNKS, dtype=np.dtype("u2"), limits=small)


def test_equal_pipelines_share_one_decoder_and_decoders_can_be_pickled():
    first = prepare((tile(),), chunks=CHUNKS, dtype=np.dtype("u2"), limits=Limits())
    assert prepare((tile(),), chunks=CHUNKS, dtype=np.dtype("u2"), limits=Limits()) is first
    assert prepare((tile(predictor=2),), chunks=CHUNKS, dtype=np.dtype("u2"), limits=Limits()) is not first
    values = picture("pickled", "u2", CHUNKS)
    data = zlib.compress(samples.chunky(values).tobytes())
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first))(data, valid=CHUNKS), values)


def test_bytes_and_memoryviews_are_taken_alike():
    values = picture("views", "u2", CHUNKS)
    data = zlib.compress(samples.chunky(values).tobytes())
    decode = prepare((tile(),), chunks=CHUNKS, dtype=np.dtype("u2"), limits=Limits())
    for given in (data, memoryview(data), memoryview(b"x" + data + b"yz")[1:-2], bytearray(data)):
        np.testing.assert_array_equal(decode(given, valid=CHUNKS), values)


@pytest.mark.parametrize("lead", [1, 2])
def test_leading_dimensions_of_one_do_not_change_how_a_chunk_decodes(lead):
    values = picture("stacked", "u2", CHUNKS)
    chunks = (1,) * lead + CHUNKS
    raw = samples.chunky(values).tobytes()
    order = [*range(lead), lead + 1, lead + 2, lead]
    for codecs, data in (
        ((tile(),), zlib.compress(raw)),
        (({"name": "transpose", "configuration": {"order": order}}, LITTLE), raw),
        (
            ({"name": "transpose", "configuration": {"order": order}}, LITTLE, {"name": "numcodecs.zlib"}),
            zlib.compress(raw),
        ),
    ):
        decode = prepare(codecs, chunks=chunks, dtype=np.dtype("u2"), limits=Limits())
        np.testing.assert_array_equal(decode(data, valid=chunks), values.reshape(chunks))
        short = decode(data, valid=(*chunks[:-2], 5, 10))
        np.testing.assert_array_equal(short[..., :5, :], values.reshape(chunks)[..., :5, :])


def test_leading_dimensions_of_more_than_one_are_refused():
    with pytest.raises(FormatError):
        prepare((tile(),), chunks=(2, *CHUNKS), dtype=np.dtype("u2"), limits=Limits())


def test_two_transposes_compose():
    values = picture("twice", "u1", CHUNKS)
    codecs = (
        {"name": "transpose", "configuration": {"order": [1, 2, 0]}},
        {"name": "transpose", "configuration": {"order": [2, 0, 1]}},
        {"name": "bytes"},
    )
    stored = values.transpose(1, 2, 0).transpose(2, 0, 1)
    decode = prepare(codecs, chunks=CHUNKS, dtype=np.dtype("u1"), limits=Limits())
    np.testing.assert_array_equal(decode(np.ascontiguousarray(stored).tobytes(), valid=CHUNKS), values)


@pytest.mark.parametrize("codec", ["tile", "standard"])
def test_a_short_last_strip_holds_the_rows_that_exist_and_no_fewer(codec):
    values = picture("short", "u2", CHUNKS)
    raw = samples.chunky(values)[:5].tobytes()
    standard = ({"name": "transpose", "configuration": {"order": [1, 2, 0]}}, LITTLE, {"name": "numcodecs.zlib"})
    decode = prepare((tile(),) if codec == "tile" else standard, chunks=CHUNKS, dtype=np.dtype("u2"), limits=Limits())
    found = decode(zlib.compress(raw), valid=(3, 5, 10))
    np.testing.assert_array_equal(found[:, :5], values[:, :5])
    with pytest.raises(DecodeError, match="300 of 360 bytes"):
        decode(zlib.compress(raw), valid=(3, 6, 10))
    np.testing.assert_array_equal(
        decode(zlib.compress(samples.chunky(values).tobytes()), valid=(3, 5, 10))[:, :5], values[:, :5]
    )


def test_a_chunk_that_holds_a_little_more_than_it_needs_is_read():
    values = picture("more", "u2", CHUNKS)
    raw = samples.chunky(values).tobytes() + b"more"
    decode = prepare((tile(),), chunks=CHUNKS, dtype=np.dtype("u2"), limits=Limits())
    np.testing.assert_array_equal(decode(zlib.compress(raw), valid=CHUNKS), values)


def test_damage_that_a_checksum_shows_is_an_error():
    values = picture("checksum", "u2", CHUNKS)
    data = bytearray(zlib.compress(samples.chunky(values).tobytes()))
    data[-1] ^= 1
    with pytest.raises(DecodeError):
        prepare((tile(),), chunks=CHUNKS, dtype=np.dtype("u2"), limits=Limits())(bytes(data), valid=CHUNKS)


def test_threads_decode_different_chunks_at_once():
    """Scratch is a thread's own: what one decodes is never seen by another."""
    chunks = [samples.sample(name) for name in samples.names()]
    decoders = [prepare(s.codecs, chunks=s.chunks, dtype=s.values.dtype, limits=Limits()) for s in chunks]
    wanted = [d(s.data, valid=s.chunks).copy() for d, s in zip(decoders, chunks)]
    wrong: list[str] = []

    def work(seed):
        for n in np.random.default_rng(seed).permutation(len(chunks) * 4) % len(chunks):
            found = decoders[n](chunks[n].data, valid=chunks[n].chunks)
            if not np.array_equal(found, wanted[n]):
                wrong.append(chunks[n].name)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_errors_keep_what_the_native_decoder_said():
    sample = samples.sample("zstd")
    with pytest.raises(DecodeError) as caught:
        prepare(sample.codecs, chunks=sample.chunks, dtype=sample.values.dtype, limits=Limits())(
            sample.data[:200], valid=sample.chunks
        )
    assert caught.value.kind == "decode"
    assert caught.value.__cause__ is not None
