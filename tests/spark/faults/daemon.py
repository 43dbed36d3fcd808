"""``pyspark.daemon`` whose Python workers know of the faults that are planned."""

from pyspark.daemon import manager

from tests.spark.faults import plan

if __name__ == "__main__":
    plan.install()
    manager()
