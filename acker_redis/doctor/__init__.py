"""The doctor: examines a Redis and its namespaces, and says how to fix each problem.

    for finding in examine("redis://127.0.0.1:6379/0", ["orders"]):
        print(finding.level, finding.title, finding.detail, finding.fix)

It may import ``ops`` and the packages below it. Start reading with ``examination.py``: it reads
facts (``reading.py``) and passes them to checks (``checks_*.py``). docs/reference/doctor.md lists
the checks.
"""

from acker_redis.doctor.examination import examine
from acker_redis.doctor.finding import TITLES, Finding, Level, Report

__all__ = ["TITLES", "Finding", "Level", "Report", "examine"]
