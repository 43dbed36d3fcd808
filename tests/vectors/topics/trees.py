"""Vectors of trees from the literature (chains, fan-outs, diamonds, joins) and of broken rules."""

from tests.vectors.operations import ack, fail, track
from tests.vectors.record import Topic, Vector

ANCHOR = 0x1F2E3D4C5B6A7988
OTHER = 0x0A1B2C3D4E5F6071
# Drawn at random once. Real ids must be drawn at random, too.
A, B, C = 0x2B7E151628AED2A6, 0x3C6EF372FE94F82B, 0x510E527FADE682D1
D, E, F = 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179, 0x428A2F98D728AE22

chains = Topic("chains", "Chains and fan-outs: the worked examples of Storm and FsShelter.")
diamonds = Topic(
    "diamonds", "spout -> bolt1, bolt2 -> bolt3 -> bolt4, and messages that several inputs caused."
)
broken = Topic(
    "broken_rules",
    "A client that breaks one of the three rules gets a false ack: its tree completes too early. "
    "A client library must send these bytes all the same: it cannot detect the error.",
)
several = Topic("several_trees", "Messages, batches and sources with more than one tree.")
TOPICS = [chains, diamonds, broken, several]


@chains.vector("no messages", "A tree without messages is complete at once.")
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1"), task="t")


@chains.vector("one message", "Its id counts when registered and when processed: zero.")
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", A), task="t")
    v.apply(ack(ANCHOR, A))


@chains.vector(
    "chain", "FsShelter's chain, source -A-> bolt -B-> bolt. Checksums: A, then B, then zero."
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", A), task="t")
    v.apply(ack(ANCHOR, A, B))
    v.apply(ack(ANCHOR, B))


@chains.vector("chain of three", "source -A-> bolt -B-> bolt -C-> bolt.")
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", A), task="t")
    v.apply(ack(ANCHOR, A, B))
    v.apply(ack(ANCHOR, B, C))
    v.apply(ack(ANCHOR, C))


@chains.vector(
    "fan-out",
    "FsShelter's fan-out, source -A-> bolt -> B, C: one input, several outputs, one row.",
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", A), task="t")
    v.apply(ack(ANCHOR, A, B, C))
    v.apply(ack(ANCHOR, B))
    v.apply(ack(ANCHOR, C))


@chains.vector(
    "fan-out, the track last",
    "Rows may come in any order: before the track they wait in a record without a task.",
)
def _(v: Vector) -> None:
    v.apply(ack(ANCHOR, C))
    v.apply(ack(ANCHOR, A, B, C))
    v.apply(ack(ANCHOR, B))
    v.apply(track(ANCHOR, "s1", A), task="t")


@chains.vector("two first messages", "One track carries all the first messages (rule 3).")
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", A, B), task="t")
    v.apply(ack(ANCHOR, B))
    v.apply(ack(ANCHOR, A))


@chains.vector(
    "first messages that are not known yet",
    "The source tracks a random id, E, and closes with a row of E and all messages it then "
    "emitted. The messages may be done before that.",
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", E), task="t")
    v.apply(ack(ANCHOR, A))
    v.apply(ack(ANCHOR, E, A, B))
    v.apply(ack(ANCHOR, B))


@chains.vector(
    "four bits",
    "The four-bit example of articles on Storm's acker: the spout emits 1001 and 1010, one bolt "
    "makes 1110 of the first, another 1111 of the second, and both are acked. Checksums: 0011, "
    "0100, 0001, 1111, 0000. Use small ids in examples only (rule 2).",
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", 0b1001, 0b1010), task="t")
    v.apply(ack(ANCHOR, 0b1001, 0b1110))
    v.apply(ack(ANCHOR, 0b1010, 0b1111))
    v.apply(ack(ANCHOR, 0b1110))
    v.apply(ack(ANCHOR, 0b1111))


@chains.vector(
    "a tree that is still open", "The checksum is the XOR of the open messages, B and C."
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", A), task="t")
    v.apply(ack(ANCHOR, A, B, C))


@diamonds.vector(
    "diamond, message 5 sent twice",
    "The diamond as the literature numbers it, taken literally: 1^2 tracked, then 1^3, 2^4, 3^5, "
    "4^5, 5, 5. After the fifth row the checksum is zero while both messages 5 are open. The two "
    "last rows then find no tree: they leave a record without one, which expires.",
    breaks_rule=2,
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", 1, 2), task="t")
    for row in ((1, 3), (2, 4), (3, 5), (4, 5), (5,), (5,)):
        v.apply(ack(ANCHOR, *row))
    v.tick(3)


@diamonds.vector(
    "diamond, an id for each message",
    "The same with 5 and 6 for the two messages out of bolt3: 1^2 tracked, then 1^3, 2^4, 3^5, "
    "4^6, 5, 6. Zero after the last row and not before. The ids are small because the "
    "literature's are; draw real ids at random.",
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", 1, 2), task="t")
    for row in ((1, 3), (2, 4), (3, 5), (4, 6), (5,), (6,)):
        v.apply(ack(ANCHOR, *row))


@diamonds.vector("diamond, random ids", "The correct way: six messages, six random ids.")
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", A, B), task="t")
    for row in ((A, C), (B, D), (C, E), (D, F), (E,), (F,)):
        v.apply(ack(ANCHOR, *row))


@diamonds.vector(
    "join of two inputs",
    "A and B together cause one message. It draws an edge id per input, C and D: each input's "
    "row carries its own, and the message's id is C ^ D.",
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", A, B), task="t")
    v.apply(ack(ANCHOR, A, C))
    v.apply(ack(ANCHOR, B, D))
    v.apply(ack(ANCHOR, C ^ D))


@diamonds.vector(
    "join of three inputs", "Three inputs, three edge ids; the joined message causes another."
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", A, B, C), task="t")
    v.apply(ack(ANCHOR, A, D), ack(ANCHOR, B, E))
    v.apply(ack(ANCHOR, C, F))
    v.apply(ack(ANCHOR, D ^ E ^ F, A))
    v.apply(ack(ANCHOR, A))


@broken.vector(
    "a split row",
    "source -A-> bolt -B-> bolt. The first bolt sends two rows, 'A is done' and later 'B is "
    "registered': the tree completes while B is in flight.",
    breaks_rule=1,
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", A), task="t")
    v.apply(ack(ANCHOR, A))
    v.apply(ack(ANCHOR, B))
    v.apply(ack(ANCHOR, B))


@broken.vector(
    "counters for ids",
    "source -1-> bolt -> 2, 3. The rows of 2 and 3 come before that of 1, and 1 ^ 2 ^ 3 is zero: "
    "the tree completes while 1 is not done. Its row, 1 ^ 2 ^ 3, then has delta 0.",
    breaks_rule=2,
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", 1), task="t")
    v.apply(ack(ANCHOR, 2))
    v.apply(ack(ANCHOR, 3))
    v.apply(ack(ANCHOR, 1, 2, 3))


@broken.vector(
    "a join with one id",
    "A and B together cause C, and both rows carry C itself: complete while C is in flight.",
    breaks_rule=2,
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", A, B), task="t")
    v.apply(ack(ANCHOR, A, C))
    v.apply(ack(ANCHOR, B, C))
    v.apply(ack(ANCHOR, C))


@broken.vector(
    "first messages one by one",
    "The source tracks A, and registers B later: complete when A is done.",
    breaks_rule=3,
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "s1", A), task="t")
    v.apply(ack(ANCHOR, A))
    v.apply(ack(ANCHOR, B))


@several.vector(
    "a message in two trees",
    "A bolt joins messages of two sources' trees: its output has an id in each, and a row in each.",
)
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "left", A), task="t")
    v.apply(track(OTHER, "right", B), task="u")
    v.apply(ack(ANCHOR, A, C), ack(OTHER, B, D))
    v.apply(ack(ANCHOR, C), ack(OTHER, D))


@several.vector("one id in two trees", "Trees are independent: the same id may be used in both.")
def _(v: Vector) -> None:
    v.apply(track(ANCHOR, "left", A), track(OTHER, "right", A), task="t")
    v.apply(ack(OTHER, A, C), ack(ANCHOR, A, C))
    v.apply(ack(ANCHOR, C))


@several.vector(
    "verdicts of one call",
    "In one batch, trees of two sources complete, fail and conflict: one entry for each source, "
    "verdict and reason, with rows in the order of the batch.",
)
def _(v: Vector) -> None:
    v.apply(track(1, "t1", A), track(2, "t2", A), track(3, "t3", A), task="t")
    v.apply(track(4, "u4", A), track(5, "u5", A), track(6, "u6", A), task="u")
    v.apply(
        ack(5, A), fail(2, "bad"), ack(1, A), fail(6, "worse"), track(3, "t3", B), ack(4, A),
        task="t",
    )  # fmt: skip


@several.vector("one done, one open, one failed", "Each tree ends with its own verdict.")
def _(v: Vector) -> None:
    v.apply(track(1, "s1", A), track(2, "s2", B), track(3, "s3", C), task="t")
    v.apply(ack(1, A), ack(2, B, D), fail(3, "no such address"))
