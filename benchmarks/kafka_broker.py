"""A Kafka broker, and Spark's connector, from jars that Maven fetches once."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
BROKER = "org.apache.kafka:kafka_2.13:4.1.0"
PARTITIONS = 4
_POM = """<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId>
<version>1</version><dependencies><dependency><groupId>{}</groupId><artifactId>{}</artifactId>
<version>{}</version></dependency></dependencies></project>"""
_BROKER = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{1}
listeners=PLAINTEXT://127.0.0.1:{0},CONTROLLER://127.0.0.1:{1}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={2}
num.partitions={3}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
broker.session.timeout.ms=60000
log.segment.delete.delay.ms=1000
"""


def jars(folder: Path, artifact: str) -> list[str]:
    """Return the jars of an artifact and of all that it needs; fetch them once, by Maven."""
    place = folder / artifact.replace(":", "-")
    if not place.exists():
        if not shutil.which("mvn"):
            raise SystemExit("Maven fetches Kafka's jars: apt install maven")
        with tempfile.TemporaryDirectory(dir=folder) as made:
            Path(made, "pom.xml").write_text(_POM.format(*artifact.split(":")))
            goal = ("dependency:copy-dependencies", "-DoutputDirectory=lib")
            done = subprocess.run(["mvn", "-q", "-B", *goal], cwd=made, capture_output=True)
            if done.returncode:
                raise SystemExit(f"Maven did not get {artifact}: {done.stdout.decode()[-1000:]}")
            Path(made, "lib").rename(place)
    return sorted(map(str, place.glob("*.jar")))


@contextlib.contextmanager
def broker(folder: Path, classes: list[str]) -> Iterator[str]:
    """Run a broker; yield its address."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        ports = one.getsockname()[1], two.getsockname()[1]
    (folder / "broker").write_text(_BROKER.format(*ports, folder / "data", PARTITIONS))
    java = ["java", "-Xmx1g", "-XX:+UseSerialGC", "-cp", ":".join(classes)]
    form = ["kafka.tools.StorageTool", "format", "-t", "A" * 21 + "Q", "-c", str(folder / "broker")]
    subprocess.run([*java, *form], check=True, capture_output=True)
    with (
        (folder / "broker.log").open("w") as log,
        subprocess.Popen(
            [*java, "kafka.Kafka", str(folder / "broker")], stdout=log, stderr=log
        ) as process,
    ):
        try:
            while True:
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", ports[0])),
                ):
                    break
                if process.poll() is not None:
                    raise SystemExit("the broker has ended")
                time.sleep(0.2)
            yield f"127.0.0.1:{ports[0]}"
        finally:
            process.terminate()
