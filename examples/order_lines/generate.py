"""Generate order lines and price lists; one seed always gives the same files.

python generate.py WORK [--lines 200000] [--seed 1]
"""

import argparse
import csv
import random
from collections.abc import Iterable
from pathlib import Path

FILES = 8
"""Files of order lines. An order is in one file, because its lines are one tuple tree."""
PRODUCTS = 400
UNPRICED = 3
"""Products that are missing in the first price list."""
MOST_LINES = 6
"""Lines of the largest orders."""


def main() -> None:
    """Write the files below the folder WORK."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    arguments.add_argument("work", type=Path)
    arguments.add_argument("--lines", type=int, default=200_000)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    generate(given.work, given.lines, given.seed)


def generate(work: Path, lines: int, seed: int) -> None:
    """Write ``lines/part-0.csv`` .., the price list ``prices.csv``, and ``all-prices.csv``."""
    dice = random.Random(seed)  # noqa: S311 - example data
    products = [f"product-{number:03d}" for number in range(PRODUCTS)]
    prices = [(product, dice.randint(99, 9_999)) for product in products]
    unpriced = set(dice.sample(products, UNPRICED))
    work.mkdir(parents=True, exist_ok=True)
    write(work / "all-prices.csv", ("product", "cents"), prices)
    first = [(product, cents) for product, cents in prices if product not in unpriced]
    write(work / "prices.csv", ("product", "cents"), first)

    orders: list[list[tuple[str, int, str, int]]] = []
    while lines:
        order = f"order-{len(orders) + 1:06d}"
        size = min(lines, dice.randint(1, MOST_LINES))
        numbers = range(1, size + 1)
        orders.append([(order, n, dice.choice(products), dice.randint(1, 9)) for n in numbers])
        lines -= size
    (work / "lines").mkdir(exist_ok=True)
    for part in range(FILES):
        rows = [line for order in orders[part::FILES] for line in order]
        write(work / "lines" / f"part-{part}.csv", ("order_id", "line", "product", "pieces"), rows)


def write(path: Path, names: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Write a CSV file with a header."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])


if __name__ == "__main__":
    main()
