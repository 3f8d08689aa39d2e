# The images of Failback: targets broker, operator, chaos, analytics. `make images` builds all four.
#
# The base image is an argument: any Debian with Python 3.11 or newer and its venv module, by default
# that of tools/base_images.toml. Packages come from requirements/ with their hashes, times from
# SOURCE_DATE_EPOCH, so equal sources give equal files.
ARG PYTHON_IMAGE
# What differs between two builds, named again by every stage that uses it.
ARG SOURCE_DATE_EPOCH=1577836800
ARG VERSION=0.2.0
ARG REVISION=unknown

# --- the wheel, and what makes, installs and lists packages ---------------------------------------
FROM ${PYTHON_IMAGE} AS wheel
ARG SOURCE_DATE_EPOCH
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} PIP_DISABLE_PIP_VERSION_CHECK=1 FAILBACK_KERNELS=off
WORKDIR /src
COPY requirements/build.txt requirements/
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/pip \
 && /opt/pip/bin/pip install --quiet --require-hashes --requirement requirements/build.txt
COPY . .
RUN /opt/pip/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels .

# --- the broker's compiled kernels: compiler and headers stay in this stage -----------------------
FROM ${PYTHON_IMAGE} AS kernels
RUN packages='gcc libc6-dev binutils' \
 && headers=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))') \
 && if [ ! -e "$headers/Python.h" ]; then packages="$packages python3-dev"; fi \
 && apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages
WORKDIR /src
COPY tools/build_native.py tools/
COPY broker-image/native broker-image/native
RUN python3 tools/build_native.py --require --out /kernels

# With the strip of the stage that compiles, for what packages left in their libraries.
FROM kernels AS files
COPY --from=wheel /opt/pip /opt/pip
COPY --from=wheel /wheels /wheels
COPY examples/spark_main.py ./
COPY requirements requirements
COPY tools/image_files.sh tools/
ARG SOURCE_DATE_EPOCH
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} PIP_DISABLE_PIP_VERSION_CHECK=1

FROM files AS broker-files
RUN --mount=type=cache,target=/root/.cache/pip sh tools/image_files.sh broker

FROM files AS operator-files
RUN --mount=type=cache,target=/root/.cache/pip sh tools/image_files.sh operator

FROM files AS chaos-files
RUN --mount=type=cache,target=/root/.cache/pip sh tools/image_files.sh chaos

FROM files AS analytics-files
RUN --mount=type=cache,target=/root/.cache/pip sh tools/image_files.sh analytics

# --- what each of them holds, to be written beside the images --------------------------------------
FROM scratch AS broker-sbom
COPY --from=broker-files /opt/failback/sbom.cdx.json /

FROM scratch AS operator-sbom
COPY --from=operator-files /opt/failback/sbom.cdx.json /

FROM scratch AS chaos-sbom
COPY --from=chaos-files /opt/failback/sbom.cdx.json /

FROM scratch AS analytics-sbom
COPY --from=analytics-files /opt/failback/sbom.cdx.json /

# --- the system that all images share, without what only builds and people at a terminal need ------
FROM ${PYTHON_IMAGE} AS system
ARG SOURCE_DATE_EPOCH
COPY tools/image_system.sh /tmp/
RUN stdlib=$(python3 -c 'import os; print(os.path.dirname(os.__file__))') \
 && if [ ! -e "$stdlib/__pycache__" ]; then \
      python3 -m compileall -q --invalidation-mode unchecked-hash \
        -x '/(test|idlelib|lib2to3|tkinter|ensurepip|turtledemo|site-packages)/' "$stdlib"; \
    fi \
 && sh /tmp/image_system.sh \
 && echo 'rocketmq:x:10001:10001:RocketMQ:/home/rocketmq:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'rocketmq:x:10001:' >> /etc/group \
 && echo "$SOURCE_DATE_EPOCH" > /etc/failback-sources-date \
 && install -d -o 10001 -g 10001 /home/rocketmq /home/rocketmq/conf /home/rocketmq/store \
      /home/rocketmq/logs /home/rocketmq/scratch /run/failback /runs

# One layer: files that a later layer deletes would still be carried by the one below. Its times are
# those of the sources; a builder finds a layer again by its content alone, hence the file with the date.
FROM scratch AS runtime
ARG SOURCE_DATE_EPOCH
COPY --from=system / /
ENV PATH=/opt/failback/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/home/rocketmq \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
LABEL org.opencontainers.image.licenses="Apache-2.0"
WORKDIR /home/rocketmq
STOPSIGNAL SIGTERM
ENTRYPOINT ["failback-init", "--", "failback"]

# --- a Java runtime of the modules that Spark loads ----------------------------------------------
FROM ${PYTHON_IMAGE} AS java
ARG JAVA_PACKAGE=openjdk-17-jdk-headless
ARG SOURCE_DATE_EPOCH
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update -qq \
 && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends binutils ${JAVA_PACKAGE} \
 && jlink --output /opt/java --strip-debug --no-man-pages --no-header-files --compress=2 --add-modules \
      java.base,java.desktop,java.instrument,java.logging,java.management,java.naming,java.net.http,java.rmi,java.scripting,java.security.jgss,java.security.sasl,java.sql,java.transaction.xa,java.xml,jdk.crypto.ec,jdk.incubator.vector,jdk.jfr,jdk.management,jdk.security.auth,jdk.security.jgss,jdk.unsupported,jdk.zipfs

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
FROM runtime AS analytics
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="failback/analytics" \
      org.opencontainers.image.description="Failback's reports, with Spark or in process" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=java /opt/java /opt/java
COPY --from=analytics-files /opt/failback /opt/failback
ENV PATH=/opt/failback/bin:/opt/java/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER 10001:10001
HEALTHCHECK NONE
CMD ["report", "--help"]
