"""Trees that a failover by sentinels loses are found: all of them, and no other."""

from acker_redis import Acker
from tests.durability.test_lost_trees import Program, check
from tests.sentinel.servers import Watched
from tests.waiting import LIMIT, wait_until


def test_trees_that_a_failover_by_sentinels_has_lost(watched: Watched) -> None:
    old, new = watched.master, watched.replica
    with Acker.from_url(watched.url, "n", retry_for=LIMIT) as acker:

        def keep() -> None:
            """Let the master refuse its replica, so that later writes are lost."""
            written = int(watched.info(old, "master_repl_offset"))
            wait_until(
                lambda: int(watched.info(new, "slave_repl_offset")) >= written,
                "a replica that has caught up",
            )
            watched.ask(old, "ACL", "SETUSER", "default", "-psync", "-sync")
            watched.ask(old, "CLIENT", "KILL", "TYPE", "replica")

        def lose() -> None:
            watched.fail_over()
            wait_until(lambda: watched.masters() == {new}, "another master", pause=0.02)
            wait_until(lambda: watched.info(old, "role") == "slave", "a demoted master", pause=0.02)
            # Until its first write a client may read from the demoted master, which lacks none.
            assert Program(acker).track(["order-x"])

        check(Program(acker), keep, lose)
