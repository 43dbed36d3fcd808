"""Track the records of a real topic; print what a job had to find out, as JSON.

The first argument is the folder of the jars. One topic is plain. In the other one, each commit of a
transaction takes an offset.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import confluent_kafka
from pyspark.sql import DataFrame

from acker_flights import session
from acker_redis import AckerConfig
from acker_redis.embedded import EmbeddedRedis
from acker_redis.spark import Acker, kafka_source_id, numbering
from acker_redis.sync import client

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import kafka_broker

RECORDS = 2000


def fill(servers: str, topic: str, **config: str) -> None:
    """Produce the records, in two transactions if the producer has any."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, **config})
    if config:
        producer.init_transactions(60)
    for half in range(2):
        if config:
            producer.begin_transaction()
        for number in range(RECORDS // 2):
            producer.produce(topic, f"{half} {number}")
        assert producer.flush(60) == 0
        if config:
            producer.commit_transaction(60)


def main(folder: Path) -> None:
    """Run a query over each topic."""
    connector = kafka_broker.jars(folder, kafka_broker.CONNECTOR)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {','.join(connector)} pyspark-shell"
    group, asked = numbering._grouped, [0]

    def grouped(df: DataFrame, *keys: str) -> Any:
        asked[0] += 1
        return group(df, *keys)

    numbering._grouped = grouped
    with (
        tempfile.TemporaryDirectory() as made,
        EmbeddedRedis(tcp=True) as server,
        kafka_broker.broker(Path(made), kafka_broker.jars(folder, kafka_broker.BROKER)) as servers,
        session.started(Path(made) / "spark") as spark,
    ):
        direct = client.Acker.from_url(server.url, "kafka", timeout=60)
        direct.create(AckerConfig(high_water=100_000, tick_ms=3_600_000))
        acker = Acker(spark, "kafka", app_id="source", url=server.url)
        found = {}
        for topic, config in {"plain": {}, "gaps": {"transactional.id": "one"}}.items():
            fill(servers, topic, **config)
            for freeze in (True, False):
                asked[0] = 0
                name = f"{topic}-{'files' if freeze else 'cache'}"
                ids: list[tuple[Any, ...]] = []

                def job(
                    df: DataFrame, batch_id: int, freeze: bool = freeze, name: str = name,
                    ids: list[tuple[Any, ...]] = ids,
                ) -> None:  # fmt: skip
                    given = df.withColumnRenamed("offset", "place").select("*")
                    with acker.batch(given, batch_id, freeze=freeze) as b:
                        by = kafka_source_id(offset="place")
                        messages = b.track(source=name, source_id=by, edges="e")
                    ids += messages.select("partition", "place", "anchor", "tuple").collect()

                before = direct.status().counters["tracked"]
                reader = spark.readStream.format("kafka").option("subscribe", topic)
                reader = reader.option("kafka.bootstrap.servers", servers)
                reader = reader.option("startingOffsets", "earliest")
                reader = reader.option("maxOffsetsPerTrigger", "1500")
                query = reader.load().writeStream.foreachBatch(job).trigger(availableNow=True)
                place = str(Path(made) / f"checkpoint-{name}")
                query.option("checkpointLocation", place).start().awaitTermination()
                tracked = direct.status().counters["tracked"] - before
                places = {(row[0], row[1]) for row in ids}
                found[name] = [tracked, len(places), len({row[2] for row in ids}), asked[0] > 0]
        print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
