"""Jars of Delta Lake, fetched once by Maven below ``.venv``, and settings of their sessions."""

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import missing

FOLDER = Path(sys.prefix) / "jars"
# Spark brings all other jars that Delta names.
_GROUPS = "io.delta,io.unitycatalog,org.roaringbitmap"
_POM = """<project><modelVersion>4.0.0</modelVersion><groupId>tests</groupId>
<artifactId>jars</artifactId><version>1</version><dependencies><dependency>
<groupId>io.delta</groupId><artifactId>{}</artifactId><version>{}</version>
</dependency></dependencies></project>"""


def delta(artifact: str, version: str) -> dict[str, str]:
    """Return the settings of a session with this version of Delta; fetch its jars if needed."""
    folder = FOLDER / f"{artifact}-{version}"
    FOLDER.mkdir(exist_ok=True)
    # Another test process may need the same jars.
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            _fetch(folder, _POM.format(artifact, version))
            (folder / "done").touch()
    return {
        "spark.jars": ",".join(map(str, sorted(folder.glob("jars/*.jar")))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }


def _fetch(folder: Path, pom: str) -> None:
    if not shutil.which("mvn"):
        missing("Maven, for the jars of Delta (apt install maven)")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "pom.xml").write_text(pom)
    goal = ("dependency:copy-dependencies", "-DoutputDirectory=jars", "-DincludeScope=runtime")
    command = ["mvn", "-q", "-B", *goal, f"-DincludeGroupIds={_GROUPS}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        missing(f"a way to Maven's registry ({' '.join(command)}): {done.stdout[-2000:]}")
