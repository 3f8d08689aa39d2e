# The images of Failback: targets broker, operator, chaos, analytics. `make images` builds all four.
#
# The base image is an argument: any Debian with Python 3.11 or newer and its venv module. Versions
# come from constraints.txt, times from SOURCE_DATE_EPOCH, so equal sources give equal files.
ARG PYTHON_IMAGE=docker.io/library/python:3.11-slim-bookworm
# What differs between two builds, named again by every stage that uses it.
ARG SOURCE_DATE_EPOCH=1577836800
ARG VERSION=0.2.0
ARG REVISION=unknown

# --- the wheel, and a pip to install it with -----------------------------------------------------
FROM ${PYTHON_IMAGE} AS wheel
ARG SOURCE_DATE_EPOCH
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=/src/constraints.txt \
    FAILBACK_KERNELS=off
WORKDIR /src
COPY . .
RUN python3 -m venv /opt/pip && /opt/pip/bin/pip wheel --quiet --no-deps --wheel-dir /wheels .

# --- the broker's compiled kernels: compiler and headers stay in this stage -----------------------
FROM ${PYTHON_IMAGE} AS kernels
RUN packages='gcc libc6-dev' \
 && headers=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))') \
 && if [ ! -e "$headers/Python.h" ]; then packages="$packages python3-dev"; fi \
 && apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages
WORKDIR /src
COPY tools/build_native.py tools/
COPY broker-image/native broker-image/native
RUN python3 tools/build_native.py --require --out /kernels

FROM wheel AS broker-files
COPY --from=kernels /kernels /kernels
RUN --mount=type=cache,target=/root/.cache/pip sh tools/image_files.sh broker

FROM wheel AS operator-files
RUN --mount=type=cache,target=/root/.cache/pip sh tools/image_files.sh operator

FROM wheel AS chaos-files
RUN --mount=type=cache,target=/root/.cache/pip sh tools/image_files.sh chaos,analytics

FROM wheel AS analytics-files
RUN --mount=type=cache,target=/root/.cache/pip sh tools/image_files.sh serve,spark

# --- what all images share: user 10001, folders for the mounts, the init as PID 1 -----------------
FROM ${PYTHON_IMAGE} AS runtime
ARG SOURCE_DATE_EPOCH
# The slim images of Python have no byte code of the standard library, and a read-only root could
# never keep any: each start would compile it again.
RUN stdlib=$(python3 -c 'import os; print(os.path.dirname(os.__file__))') \
 && if [ ! -e "$stdlib/__pycache__" ]; then \
      python3 -m compileall -q --invalidation-mode unchecked-hash \
        -x '/(test|idlelib|lib2to3|tkinter|ensurepip|turtledemo|site-packages)/' "$stdlib"; \
    fi \
 && echo 'rocketmq:x:10001:10001:RocketMQ:/home/rocketmq:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'rocketmq:x:10001:' >> /etc/group \
 && install -d -o 10001 -g 10001 /home/rocketmq /home/rocketmq/conf /home/rocketmq/store \
      /home/rocketmq/logs /home/rocketmq/scratch /run/failback /runs
ENV PATH=/opt/failback/bin:$PATH \
    HOME=/home/rocketmq \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
LABEL org.opencontainers.image.licenses="Apache-2.0"
WORKDIR /home/rocketmq
STOPSIGNAL SIGTERM
ENTRYPOINT ["failback-init", "--", "failback"]

FROM runtime AS runtime-java
ARG JAVA_PACKAGE=openjdk-17-jre-headless
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends ${JAVA_PACKAGE} \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old \
      /var/log/dpkg.log /var/log/apt /var/log/alternatives.log

# --- broker: brokers, name servers, and the small tools of their init containers ------------------
FROM runtime AS broker
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="failback/broker" \
      org.opencontainers.image.description="Failback's RocketMQ broker and name server" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=broker-files /opt/failback /opt/failback
USER 10001:10001
EXPOSE 8088 9876 10909 10911 10912
HEALTHCHECK --interval=10s --timeout=5s --start-period=20m --retries=6 CMD ["python3", "-IS", "-c", "import os, urllib.request as u; u.urlopen('http://%s:%s/livez' % (os.environ.get('POD_IP') or '127.0.0.1', os.environ.get('FAILBACK_HTTP_PORT', '8088')), timeout=4)"]
CMD ["broker", "-c", "/home/rocketmq/conf/broker.conf"]

# --- operator ------------------------------------------------------------------------------------
FROM runtime AS operator
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="failback/operator" \
      org.opencontainers.image.description="Failback's Kubernetes operator" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=operator-files /opt/failback /opt/failback
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=1m --retries=6 CMD ["python3", "-IS", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
CMD ["operator", "run"]

# --- chaos: runs one arm of an experiment, then ends; its exit code is its health ------------------
FROM runtime AS chaos
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="failback/chaos" \
      org.opencontainers.image.description="Failback's fault injection and workload" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=chaos-files /opt/failback /opt/failback
USER 10001:10001
EXPOSE 8088
HEALTHCHECK NONE
CMD ["experiment", "--help"]

# --- analytics: reports, in process or with Spark; a job as well -----------------------------------
FROM runtime-java AS analytics
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="failback/analytics" \
      org.opencontainers.image.description="Failback's reports, with Spark or in process" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=analytics-files /opt/failback /opt/failback
USER 10001:10001
HEALTHCHECK NONE
CMD ["report", "--help"]
