"""The orders that the tour sends: five orders, a dozen items."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Order:
    """An order of a web shop, and one record of the source."""

    id: str
    items: tuple[str, ...]
    address: str


ORDERS = (
    Order("order-1", ("lamp", "mug"), "4 Lime Street, York"),
    Order("order-2", ("chair", "desk", "rug"), "17 Mill Lane, Leeds"),
    Order("order-3", ("clock",), "1 Nowhere Road, Leeds"),
    Order("order-4", ("pen", "ink", "paper"), "9 Abbey Walk, Bath"),
    Order("order-5", ("teapot", "vase", "cup"), "30 Quay Street, Hull"),
)
UNKNOWN_ADDRESS = "1 Nowhere Road, Leeds"
"""No parcel can be delivered there: the bolt ``ship`` fails the order."""
LOST = ("order-5", "vase")
"""Order and item that the bolt ``ship`` holds in memory when it restarts, once."""
PRICES = {
    "chair": 89,
    "clock": 35,
    "cup": 8,
    "desk": 240,
    "ink": 6,
    "lamp": 48,
    "mug": 9,
    "paper": 12,
    "pen": 3,
    "rug": 130,
    "teapot": 27,
    "vase": 41,
}
"""Prices in pounds, for the bolt ``price``."""
