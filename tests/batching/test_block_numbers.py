"""Numbers of blocks: derived from the salt, the source and the label."""

from itertools import combinations

import pytest

from acker_redis.batching.batch import Batch
from acker_redis.errors import ConfigError
from acker_redis.protocol.id_maker import UNKNOWN, IdMaker
from acker_redis.protocol.ids import split_anchor

SALT = "00112233445566778899aabbccddeeff"
IDS = IdMaker(salt=SALT)


def number_of(label: str, source: str = "t", ids: IdMaker = IDS) -> int:
    """Track a block, and return its number."""
    place = split_anchor(Batch(source, ids=ids).track_block(label, [1])[0])
    assert place
    return place[0]


def test_number_depends_on_salt_source_and_label_only() -> None:
    """A program that runs again tracks the same block, regardless of what it tracked before."""
    assert number_of("flights/2013-01-01", "flights") == IDS.block("flights", "flights/2013-01-01")
    assert number_of("page 1") == number_of("page 1", ids=IdMaker(("mill", "shop"), SALT))
    numbers = {
        number_of("page 1"),
        number_of("page 2"),
        number_of("page 1", "u"),
        number_of("1", "tpage"),
        number_of("page 1", ids=IdMaker(salt=SALT[::-1])),
    }
    assert len(numbers) == 5
    assert all(0 <= number < 2**50 for number in numbers)


def test_parts_of_an_identity_do_not_run_together() -> None:
    parts = (("q", 70), ("q", 7, 0), ("q7", 0), ("q7", ""), ("", "q7"), ("q\0", 7), ())
    assert len({IDS.block(*each) for each in parts}) == len(parts)
    assert IDS.block("q", 7, 0) == IDS.block("q", "7", "0")


def test_number_is_stable_across_versions() -> None:
    assert IDS.block("flights", "2013-01-01") == 822811233611799, "must never change"


def test_author_without_the_salt_cannot_choose_labels_that_share_a_number() -> None:
    """An author of labels who knows all but the salt chooses under a salt of her own.

    She looks for labels that agree in 16 bits of 50, which is easy. Under the salt of the namespace
    these labels agree no more often than others.
    """
    labels = [f"page {k}" for k in range(1500)]
    guessed = IdMaker(salt=SALT[::-1])
    low = {label: guessed.block("t", label) & 0xFFFF for label in labels}
    chosen = [pair for pair in combinations(labels, 2) if low[pair[0]] == low[pair[1]]]
    assert len(chosen) > 5
    for one, two in chosen:
        assert IDS.block("t", one) & 0xFFFF != IDS.block("t", two) & 0xFFFF


@pytest.mark.parametrize("ids", [IdMaker(), IdMaker(("mill",)), None])
def test_batch_without_the_salt_asks_for_it(ids: IdMaker | None) -> None:
    batch = Batch("t") if ids is None else Batch("t", ids=ids)
    with pytest.raises(ConfigError, match=r"number of a block, needs the salt .* ids=acker\.ids"):
        batch.track_block("page 1", [1])
    assert batch.parts() == []
    assert len(batch.track_block("page 1", [1], block=7)) == 1


def test_batch_with_a_salt_that_was_not_read_says_so() -> None:
    with pytest.raises(ConfigError, match="could not be read from Redis"):
        Batch("t", ids=UNKNOWN).track_block("page 1", [1])
