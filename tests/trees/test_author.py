"""An author of data knows the code, the names and all ids, but not the salt of the namespace.

Ids are derived from keys, which are data. An author who can compute the ids can choose keys whose
ids cancel. The keys below were found by the four-list algorithm of Wagner (A generalized birthday
problem, CRYPTO 2002) among a million order numbers, in twelve seconds.
"""

import pytest

from acker_redis.protocol import id_maker
from acker_redis.protocol.id_maker import IdMaker
from acker_redis.protocol.rows import TRACK
from acker_redis.trees.processing import Processing
from proof.reference.acker import Reference, TreeRow

GUESSED = "00" * 16
KEYS = ["order-35258", "order-519199", "order-661846", "order-923475"]


def verdicts(salt: str) -> list[str]:
    """Process a message that causes four messages, all of which are lost; return the verdicts."""
    acker = Reference()
    acker.apply([TreeRow(7, 40, TRACK, "page-1")], "shop")
    processing = Processing("7:40", ids=IdMaker(edges=("mill",), salt=salt))
    for key in KEYS:
        processing.emit(key=key)
    acker.apply([TreeRow(row.anchor, row.delta) for row in processing.acked()])
    for _ in range(acker.config.buckets):
        acker.rotate(force=True)
        acker.expire()
    return [outcome.verdict for outcome in acker.take("shop")]


def test_author_who_knows_the_salt_can_choose_messages_that_cancel() -> None:
    """Why the salt is a secret. If this changes, the other test proves nothing."""
    assert verdicts(GUESSED) == ["ack"]


def test_author_without_the_salt_cannot_choose_messages_that_cancel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert verdicts("5a" * 16) == ["nack"]
    derive = id_maker.derive
    monkeypatch.setattr(
        id_maker, "derive", lambda _salt, purpose, parts: derive(GUESSED, purpose, parts)
    )
    assert verdicts("5a" * 16) == ["ack"], "this test does not detect a salt that is left out"
