"""The cases of the fault tests, for the driver that is killed."""

from tests.spark.faults.conftest import MakeCase, java, make_case

__all__ = ["MakeCase", "java", "make_case"]
