# syntax=docker/dockerfile:1
# The image of usher: webhook, controller and certificate agent are one program.
#
#   make image
#   docker buildx build --platform linux/amd64,linux/arm64 --tag REGISTRY/usher:VERSION --push .
#
# Both bases are pinned by digest, that of the index, which covers all architectures. Move tag and
# digest together: `docker buildx imagetools inspect IMAGE:TAG` prints the digest. Python's minor
# version and Debian's release must be the same in both: packages and bytecode are made in the first
# and run in the second.
ARG BUILD_IMAGE=docker.io/library/python:3.13.15-slim-trixie@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
ARG RUNTIME_IMAGE=gcr.io/distroless/python3-debian13:nonroot@sha256:83aa8d4f74a4d7f7cf2d472054139bef71a927b76c680c0f2e1021d6b1d6d732

FROM ${BUILD_IMAGE} AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

# Everything is called by the path that Python has in the final image, so that the links and first
# lines in /opt/usher hold there, too.
RUN ln -s /usr/local/bin/python3.13 /usr/bin/python3.13 \
    && /usr/bin/python3.13 -m venv --without-pip --symlinks /opt/usher \
    && grep -qx 'home = /usr/bin' /opt/usher/pyvenv.cfg

WORKDIR /src

# Dependencies change less often than the program: a layer of their own. Wheels only, so that nothing
# is compiled and no code of a dependency runs while it is installed.
COPY requirements/runtime.txt requirements/
RUN python3.13 -m pip --python /opt/usher/bin/python install --quiet --no-compile --no-deps \
        --require-hashes --only-binary :all: --requirement requirements/runtime.txt

# What builds the wheel stays in this stage.
COPY requirements/build.txt requirements/
RUN python3.13 -m pip install --quiet --no-deps --require-hashes --only-binary :all: \
        --requirement requirements/build.txt

COPY pyproject.toml README.md LICENSE ./
COPY rules rules
COPY cluster cluster
COPY webhook webhook
COPY controller controller
COPY certs certs
COPY cli cli

# Seconds since 1970; the same value gives the same bytes.
ARG SOURCE_DATE_EPOCH=0
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH}

RUN python3.13 -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /tmp/wheels . \
    && python3.13 -m pip --python /opt/usher/bin/python install --quiet --no-compile --no-deps \
        /tmp/wheels/usher-*.whl

# The root file system is read-only later: bytecode is made now, checked by nothing, with no times in
# it; anew (-f), because pip has left some with times behind, of what it imports in there. Programs
# of dependencies and of the shell go. Then every file gets the same time.
RUN /opt/usher/bin/python -m compileall -q -f --invalidation-mode unchecked-hash /opt/usher/lib \
    && find /opt/usher/bin -type f ! -name usher -delete \
    && find /opt/usher -exec touch --no-dereference --date "@${SOURCE_DATE_EPOCH}" {} +

# No shell, no package manager, no pip, no compiler.
FROM ${RUNTIME_IMAGE}

ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="usher" \
      org.opencontainers.image.description="Graceful, coordinated pod eviction for any Kubernetes cluster, and its enforcement." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="gcr.io/distroless/python3-debian13:nonroot"

COPY --from=build /opt/usher /opt/usher

# HOME: a cluster may choose another user, who has none; a library wants to know where it is.
ENV PATH=/opt/usher/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/home/nonroot \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

# By number: kubelets can't tell that a name is not root's. It is the base's "nonroot".
USER 65532:65532
WORKDIR /

# Webhook, controller and certificate agent; the ports of health and metrics of each.
EXPOSE 9443 8080 8081 8082

# No HEALTHCHECK: kubelets don't look at it, and probes differ by command.
ENTRYPOINT ["usher"]
CMD ["--help"]
