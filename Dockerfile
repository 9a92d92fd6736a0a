# kuvasz with Java, Spark and all jars inside: it starts without a network.
#
#   docker build -t kuvasz .
#   docker run --name kuvasz -v kuvasz-state:/var/lib/kuvasz -v ./map.yaml:/var/lib/kuvasz/map.yaml:ro -e EU_PW=… \
#     kuvasz --config map.yaml
#   docker exec kuvasz kuvasz status --config map.yaml
#
# Relative paths of a map begin at its folder: here the volume, where the state folder must be. A map that lies
# elsewhere, in a mounted ConfigMap say, names them with /var/lib/kuvasz/… in full.

# The digest is that of the tag's list of platforms: all of them build from the same. It moves by a commit alone, to have
# Debian's and Python's fixes; `docker buildx imagetools inspect python:3.12-slim` shows the one of today.
FROM python:3.12.14-slim-trixie@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea

RUN apt-get update \
 && apt-get install -y --no-install-recommends tini \
 && (apt-get install -y --no-install-recommends openjdk-17-jre-headless \
  || apt-get install -y --no-install-recommends openjdk-21-jre-headless) \
 && rm -rf /var/lib/apt/lists/* \
 && java --list-modules | grep -q '^jdk.incubator.vector' \
 && useradd --system --create-home --uid 10001 kuvasz \
 && install -d -o kuvasz -g kuvasz /var/lib/kuvasz /usr/local/share/kuvasz

WORKDIR /opt/kuvasz
COPY requirements requirements
# pip compiles what it installs: the user below may not write there, and each command would compile all of it anew.
RUN pip install --no-cache-dir --require-hashes -r requirements/build.lock \
 && pip install --no-cache-dir --require-hashes --no-build-isolation -r requirements/run.lock
COPY pyproject.toml README.md ./
COPY kuvasz kuvasz
RUN pip install --no-cache-dir --no-deps --no-build-isolation . && rm -rf /opt/kuvasz

# As the user that will look for them: Ivy's cache and numba's compiled kernels lie in its home, archives of the jars'
# classes in /usr/local/share/kuvasz.
USER kuvasz
ENV NUMBA_CACHE_DIR=/home/kuvasz/.cache/numba PYTHONUNBUFFERED=1
RUN python -m kuvasz.lake.iceberg.prefetch --aws

WORKDIR /var/lib/kuvasz
VOLUME /var/lib/kuvasz
EXPOSE 8000
# The addresses of the map bind to loopback by default; a container is reached from outside.
ENV KUVASZ_SERVER__ADDRESS=0.0.0.0:8000
STOPSIGNAL SIGTERM
COPY deploy/healthcheck.py /usr/local/share/kuvasz/
HEALTHCHECK --interval=15s --timeout=12s --start-period=30s CMD ["python", "/usr/local/share/kuvasz/healthcheck.py"]
# tini reaps what Spark leaves behind: as process 1, kuvasz would have to.
ENTRYPOINT ["tini", "--", "kuvasz"]
CMD ["--help"]
