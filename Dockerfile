# The image of proxy, simulated backends and load generator: one program, three commands.
#
# 1. Everything is downloaded by requirements.lock, by hash; what the running program does not need
#    (test tools) stays in the first stage.
# 2. Nothing runs as root, and nothing is written outside of /tmp.

FROM python:3.11-slim-bookworm AS build
WORKDIR /build
COPY requirements.lock ./
RUN python -m pip download --no-cache-dir --disable-pip-version-check --quiet --require-hashes --dest wheels -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY proxy proxy
COPY loadgen loadgen
RUN python -m venv /opt/manometer
RUN /opt/manometer/bin/pip install --no-cache-dir --disable-pip-version-check --quiet --no-index --find-links wheels ".[page]"

FROM python:3.11-slim-bookworm
COPY --from=build /opt/manometer /opt/manometer
# An open bind: the proxy refuses to start with a backend's key until [clients] says who may call,
# or allow_anonymous says that whoever reaches the port may.
ENV PATH=/opt/manometer/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    MANOMETER_LISTEN__ADDRESS=0.0.0.0:8080 \
    MANOMETER_LISTEN__ADMIN=0.0.0.0:9464
USER 10001:10001
WORKDIR /tmp
EXPOSE 8080 9464
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9464/healthz', timeout=2)"]
ENTRYPOINT ["manometer"]
CMD ["serve"]
