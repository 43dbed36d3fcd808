"""A ``pyspark.daemon`` whose Python workers inject the planned faults."""

from pyspark.daemon import manager

from tests.spark.faults import plan

if __name__ == "__main__":
    plan.install()
    manager()
