"""The cluster that these tests share."""

from tests.cluster.fixtures import cluster, session_cluster

__all__ = ["cluster", "session_cluster"]
