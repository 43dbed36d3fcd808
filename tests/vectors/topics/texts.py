"""Vectors of texts that need correct escaping and encoding."""

from tests.vectors.operations import Json, fail, track
from tests.vectors.record import Topic, Vector

texts = Topic("texts", "Source ids and whys come back unchanged, with any content.")
TOPICS = [texts]
A = 0x2B7E151628AED2A6


def _both_ways(v: Vector, text: str) -> None:
    """Use a text as source id and as why, in verdicts of apply and of expire."""
    rows: list[Json] = [track(1, text), track(2, "s2"), fail(2, text), track(3, text, A)]
    v.apply(*rows, task="t")
    v.apply(fail(4, text))
    v.tick(3)
    v.apply(fail(4, text))
    v.apply(track(4, text, A), task="t")


TEXTS = {
    "quotes": 'say "yes"',
    "backslashes": "C:\\temp\\new \\u0041 \\\\",
    "slashes": "https://example.org/a/b?c=d&e=f",
    "a quote after a backslash": '\\"\\\\"',
    "two bytes": "\u00fcml\u00e4ut \u00df \u03b1\u03b2\u03b3",
    "three bytes": "\u65e5\u672c\u8a9e \u20ac \u0939",
    "four bytes": "\U0001f600 \U0001f1e9\U0001f1ea \U00010348",
    "the edges of UTF-8": "\u0080 \u07ff \u0800 \ud7ff \ue000 \uffff \U00010000 \U0010ffff",
    "combining and right to left": "e\u0301 \u202e abc \u05e9\u05dc\u05d5\u05dd",
    "formats": "%s %d %1 ${x} {0} <b>&amp;</b> '; DROP TABLE t --",
    "looks like JSON": '["1",2,null]',
    "one space": " ",
    "255 bytes": "x" * 255,
    "255 bytes, 128 letters": "\u00e9" * 127 + "x",
}

for _name, _text in TEXTS.items():

    def _declare(name: str, text: str) -> None:
        @texts.vector(name, "As source id and as why, in verdicts of apply and of expire.")
        def _(v: Vector) -> None:
            _both_ways(v, text)

    _declare(_name, _text)


@texts.vector("names", "All characters of a task, 64 of them; a producer may be any text.")
def _(v: Vector) -> None:
    name = "ABCXYZabcxyz0189_.-".ljust(64, "x")
    v.apply(track(7, "s7"), task=name, producer='"\u00fc\\ \u65e5', seq=1)
    v.take(name)
