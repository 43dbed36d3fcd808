"""The cases of the fault tests, for the driver that is killed, and the shop of the replays."""

from tests.spark.faults.conftest import MakeCase, java, make_case
from tests.spark.replay_shop import make_shop

__all__ = ["MakeCase", "java", "make_case", "make_shop"]
