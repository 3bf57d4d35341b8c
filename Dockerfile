# syntax=docker/dockerfile:1
# The package with the extra standard, and the hello example as the application:
#
#   docker build --tag reactive-kafka .
#
# For a service, copy your own modules to /app instead of the example. With Spark, add the extra spark and a JRE.

FROM python:3.13-slim-trixie AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src

# The dependencies come first: this layer stays while only the package changes.
COPY deploy/requirements.txt deploy/requirements.txt
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --require-hashes --no-deps --requirement deploy/requirements.txt

# The build backend comes from the lock as well.
COPY scripts/lock-of.sh scripts/lock-of.sh
COPY constraints.txt constraints.txt
RUN scripts/lock-of.sh hatchling hatch-fancy-pypi-readme packaging pathspec pluggy trove-classifiers > build.txt \
    && pip install --require-hashes --no-deps --requirement build.txt

COPY pyproject.toml README.md LICENSE ./
COPY reactive_kafka reactive_kafka
COPY examples/demo examples/demo
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/venv/bin/pip install --no-deps dist/*.whl \
    && /opt/venv/bin/reactive-kafka --version


FROM python:3.13-slim-trixie
LABEL org.opencontainers.image.title="reactive-kafka" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Probes and Prometheus come from outside of the container.
ENV REACTIVE_KAFKA__HTTP__HOST=0.0.0.0
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin service
COPY --from=build /opt/venv /opt/venv
WORKDIR /app
COPY examples/hello/hello.py examples/hello/reactive-kafka.toml ./
USER 10001:10001
EXPOSE 9000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9000/health/live', timeout=4)"]
# The exec form: the signal of `docker stop` reaches the service. Give it more time than drain_timeout.
CMD ["reactive-kafka", "run", "hello:app", "--log-format", "json", "--exit-on-failure"]
