import copy
import json
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from randomgen import AESCounter
from scipy import stats

from reticent.randomness import is_seeded, secure, seeded

# Statistical tests look at fixed streams, so they pass always or never; each would reject one good
# stream in a million.
FALSE_ALARM = 1e-6
VECTORS = Path(__file__).parents[1] / "vectors" / "randomness.json"

items = st.integers() | st.text(st.characters(exclude_categories=["Cs"]))


def test_the_cipher_is_aes_128_in_counter_mode() -> None:
    """Key and counter of FIPS 197, appendix C.1, give the ciphertext printed there."""
    key = int.from_bytes(bytes(range(16)), "little")
    plain = int.from_bytes(bytes.fromhex("00112233445566778899aabbccddeeff"), "little")
    stream = AESCounter(key=key, counter=plain).random_raw(2)
    assert isinstance(stream, np.ndarray)
    assert stream.tobytes().hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"


@pytest.mark.parametrize("vector", json.loads(VECTORS.read_text()), ids=lambda v: str(v["path"]))
def test_seeded_streams_never_change(vector: dict[str, Any]) -> None:
    """The first words of each stream are those that every version of Reticent has given."""
    stream = seeded(vector["seed"], *vector["path"]).bit_generator
    assert [f"{int(word):016x}" for word in stream.random_raw(3)] == vector["words"]


@given(st.lists(items, min_size=1, max_size=4), st.lists(items, min_size=1, max_size=4))
def test_streams_are_equal_exactly_when_their_paths_are(one: list[int | str], other: list[int | str]) -> None:
    same = [type(item) for item in one] == [type(item) for item in other] and one == other
    assert (_words(seeded(*one)) == _words(seeded(*other))) == same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1,), ("1",)),
        (("ab", "c"), ("a", "bc")),
        (("a", "b"), ("ab",)),
        ((1, 23), (12, 3)),
        ((7,), (7, "")),
        ((0,), (0, 0)),
        ((-1,), (1,)),
        ((255,), ("ff",)),
    ],
)
def test_paths_that_look_alike_are_told_apart(one: tuple[int | str, ...], other: tuple[int | str, ...]) -> None:
    assert _words(seeded(*one)) != _words(seeded(*other))


def test_numpy_integers_name_the_same_stream_as_python_ones() -> None:
    assert _words(seeded(7, int(np.int64(12)))) == _words(seeded(np.int64(7), np.uint8(12)))  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [1.0, None, True, np.True_, b"7", (1, 2)])
def test_a_path_of_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="whole numbers or text: got"):
        seeded(7, wrong)


def _uniform_p_value(draws: np.ndarray) -> float:
    return float(stats.kstest(draws, "uniform").pvalue)


def _bytes_p_value(draws: np.ndarray) -> float:
    words = (draws * 2**53).astype(np.uint64)
    counts = np.bincount((words >> np.uint64(20)).astype(np.uint8), minlength=256)
    return float(stats.chisquare(counts).pvalue)


@pytest.mark.parametrize("p_value", [_uniform_p_value, _bytes_p_value])
def test_streams_are_uniform(p_value: Callable[[np.ndarray], float]) -> None:
    """Within one stream, and across the first draws of many."""
    assert p_value(seeded(1, "uniform").random(100_000)) > FALSE_ALARM
    assert p_value(np.array([seeded(1, n).random() for n in range(5_000)])) > FALSE_ALARM


def test_the_tests_of_uniformity_reject_what_is_not_uniform() -> None:
    draws = seeded(1, "uniform").random(100_000)
    assert _uniform_p_value(draws**1.05) < FALSE_ALARM
    assert _bytes_p_value(np.floor(draws * 2**30) / 2**30 + 0.1 * 2**-30) < FALSE_ALARM


def test_neighbouring_streams_are_uncorrelated() -> None:
    """Fisher's z of each pair stays within its normal bounds, Bonferroni over the pairs."""
    streams = np.array([seeded(5, "phone", n).standard_normal(20_000) for n in range(20)])
    correlations = np.corrcoef(streams)[np.triu_indices(20, 1)]
    z = np.abs(np.arctanh(correlations)) * math.sqrt(20_000 - 3)
    assert z.max() < stats.norm.isf(FALSE_ALARM / 2 / z.size)
    leaking = np.corrcoef(streams[0], streams[1] + 0.1 * streams[0])[0, 1]
    assert np.arctanh(leaking) * math.sqrt(20_000 - 3) > stats.norm.isf(FALSE_ALARM / 2 / z.size)


def test_no_global_generator_is_read_or_moved() -> None:
    np.random.seed(3)  # noqa: NPY002  # the global state is what is looked at
    before = _words(seeded(7)), pickle.dumps(np.random.get_state())  # noqa: NPY002
    secure().random(10)
    assert before[1] == pickle.dumps(np.random.get_state())  # noqa: NPY002
    np.random.seed(4)  # noqa: NPY002
    assert before[0] == _words(seeded(7))


def test_secure_generators_share_no_stream() -> None:
    first = {_words(secure()) for _ in range(200)}
    assert len(first) == 200


def test_secure_generators_do_not_pass_through_numpys_seeding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The key of the cipher is the operating system's 128 bits, unchanged."""
    monkeypatch.setattr("secrets.randbits", lambda bits: 2**bits - 7)
    assert _words(secure()) == tuple(_raw(AESCounter(key=2**128 - 7)))


def test_who_is_seeded() -> None:
    """Only what `secure` made is not."""
    generator = secure()
    assert not is_seeded(generator)
    foreign = [
        seeded(7),
        np.random.default_rng(),
        np.random.default_rng(7),
        np.random.Generator(AESCounter(key=7)),  # type: ignore[arg-type]
        np.random.Generator(generator.bit_generator),
    ]
    assert all(is_seeded(rng) for rng in foreign)


def test_a_secure_generator_given_other_bits_counts_as_seeded() -> None:
    generator = secure()
    generator.__init__(np.random.PCG64(3))  # type: ignore[misc]
    assert is_seeded(generator)


@pytest.mark.parametrize(
    "misuse",
    [
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        lambda rng: copy.copy(rng.bit_generator),
        lambda rng: copy.deepcopy(rng.bit_generator),
        lambda rng: pickle.dumps(rng.bit_generator),
        lambda rng: rng.spawn(2),
        lambda rng: rng.bit_generator.jumped(),
        lambda rng: rng.bit_generator.state,
        lambda rng: setattr(rng.bit_generator, "state", AESCounter(key=3).state),
        lambda rng: rng.bit_generator.seed(3),
        lambda rng: rng.bit_generator.seed(key=3),
    ],
)
def test_a_secure_stream_is_never_had_twice(misuse: Callable[[np.random.Generator], Any]) -> None:
    """Copying, saving, branching, reading and setting the state are all refused."""
    with pytest.raises(TypeError, match=r"^a secure generator (cannot|does not|has no)"):
        misuse(secure())


def test_a_secure_generator_does_not_print_its_key() -> None:
    generator = secure()
    shown = repr(generator) + str(generator) + repr(generator.bit_generator)
    assert not any(character.isdigit() for character in shown.split(" at 0x")[0])


FORK = """
import os
from reticent.randomness import secure
rng = secure()
rng.random(5)
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, rng.bytes(16))
    os._exit(0)
os.wait()
print(rng.bytes(16) == os.read(reader, 16))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_a_forked_process_draws_other_noise_than_its_parent() -> None:
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_a_seeded_generator_is_saved_where_it_stands() -> None:
    generator = seeded(7, "saved")
    generator.random(3)
    later = pickle.loads(pickle.dumps(generator))  # noqa: S301  # our own bytes
    again = copy.deepcopy(generator)
    assert generator.random(5).tolist() == later.random(5).tolist() == again.random(5).tolist()
    assert is_seeded(later)


def test_a_seeded_generator_has_no_unnamed_children() -> None:
    with pytest.raises(TypeError, match="name them"):
        seeded(7).spawn(2)


def _words(rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(_raw(rng.bit_generator))


def _raw(stream: Any) -> list[int]:
    return [int(word) for word in stream.random_raw(4)]
