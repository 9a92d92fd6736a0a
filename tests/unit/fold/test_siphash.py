from __future__ import annotations

import os
import subprocess
import sys

from kuvasz.fold import siphash

SEED = bytes(range(16))


def test_siphash_2_4_of_64_bits_gives_the_published_vectors():
    # github.com/veorq/SipHash, vectors.h; the one of 15 bytes is also in appendix A of the paper.
    published = {0: "310e0edd47db6f72", 1: "fd67dc93c539f874", 15: "e545be4961ca29a1"}
    for length, expected in published.items():
        value = siphash.hash64(SEED, bytes(range(length)), compress=2, finish=4)
        assert value.to_bytes(8, "little").hex() == expected


def test_siphash_2_4_of_128_bits_gives_the_published_vectors():
    published = {0: "a3817f04ba25a8e66df67214c7550293", 1: "da87c1d86b99af44347659119b22fc45"}
    for length, expected in published.items():
        words = siphash.hash128(SEED, bytes(range(length)), compress=2, finish=4)
        assert b"".join(word.to_bytes(8, "little") for word in words).hex() == expected


def test_siphash_1_3_agrees_with_the_interpreters_own():
    # CPython hashes bytes with SipHash-1-3 since 3.11 (bpo-29410); PYTHONHASHSEED=0 makes the key zero.
    assert sys.hash_info.algorithm == "siphash13"
    messages = [bytes(range(length)) for length in (1, 7, 8, 9, 63, 255, 256)]
    answer = subprocess.run(
        [sys.executable, "-c", f"print([hash(m) for m in {messages!r}])"],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [value & (1 << 64) - 1 for value in eval(answer)] == [siphash.hash64(bytes(16), m) for m in messages]  # noqa: S307
