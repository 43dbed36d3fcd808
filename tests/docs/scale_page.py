"""Write the table of the page about scale: ``python -m tests.docs.scale_page``.

The table has what ``acker-redis size`` computes.
"""

from collections.abc import Iterator

from rich.filesize import decimal

from acker_redis.cli.size import amount
from acker_redis.ops.sizing import KINDS, Kind, Load, Size, size
from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "explanation" / "scale.md"
BEGIN, END = "<!-- tests.docs.scale_page -->\n", "<!-- end -->\n"
RATES = {"10 k": 1e4, "100 k": 1e5, "1 M": 1e6, "10 M": 1e7}
"""Messages a second, in trees of five messages that take 5 s."""
COLUMNS = (
    "messages/s", "tracked as", "servers", "shards", "pending · stalled",
    "to · from Redis, a second", "verdicts/s", "programs", "short first",
)  # fmt: skip
HEAD = f"\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"


def page() -> str:
    """Return the page, with the table as it should be."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{HEAD}{''.join(_lines())}\n{END}{after}"


def _lines() -> Iterator[str]:
    for name, rate in RATES.items():
        for kind in KINDS:
            yield _line(name, size(Load(rate / 5, kind=_kind(kind))))


def _kind(name: str) -> Kind:
    return "blocks" if name == "blocks" else "rows"


def _line(name: str, found: Size) -> str:
    sent, received = round(found.bytes_in_per_s), round(found.bytes_out_per_s)
    short = found.needs[0]
    shards = f"{found.namespaces} x {found.shards}" if found.namespaces > 1 else found.shards
    cells = (
        *(name, found.load.kind, f"{found.servers} for {amount(found.redis_cores)} cores"),
        *(shards, f"{decimal(found.pending_bytes)} · {decimal(found.stalled_bytes)}"),
        *(f"{decimal(sent)} · {decimal(received)}", f"{found.verdicts_per_s:,.0f}"),
        *(f"{amount(found.python_cores)} cores", f"{short.name}, {amount(short.used)} x"),
    )
    return f"| {' | '.join(map(str, cells))} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
