"""The shared cluster of these tests."""

from tests.cluster.fixtures import cluster, session_cluster

__all__ = ["cluster", "session_cluster"]
