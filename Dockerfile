# The images of configdep-apiserver and, as the targets agent and plugin, of configdep-agent and kubectl-configdep: static
# programs and what TLS needs.
#
#   make image IMAGE=example.com/configdep-apiserver:v0.1.0            all, for this machine's platform
#   make image IMAGE=... PLATFORMS=linux/amd64,linux/arm64 PUSH=true   for several, into a registry
#
# hack/image-archive.sh makes the same images without docker, and a test (test/extended/release) compares them.
#
# Both base images are pinned by tag. A tag can be moved, so a release names them by digest,
# as "docker buildx imagetools inspect IMAGE" shows it, and keeps what it has used:
#
#   make image ... BUILD_IMAGE=golang:1.26.10@sha256:... BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot@sha256:...
#
# The programs do not depend on the builder's platform or folder, and are those of the release
# ("make release") of the same version: both call hack/build.sh with the Go of this version.
ARG GO_VERSION=1.26.10
ARG BUILD_IMAGE=golang:${GO_VERSION}
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

# Compiles on the platform of the builder for that of the image, which needs no emulation.
FROM --platform=$BUILDPLATFORM ${BUILD_IMAGE} AS build
# What the image brings is what compiles: nothing is fetched in its place.
ENV GOTOOLCHAIN=local
WORKDIR /src
# Modules are fetched again only when they change.
COPY go.mod go.sum ./
RUN go mod download
COPY hack/build.sh hack/
COPY cmd/ cmd/
COPY pkg/ pkg/
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=devel
# The time of the commit, for the files in the image; BuildKit itself takes it for the image.
ARG SOURCE_DATE_EPOCH=0
RUN GOOS=${TARGETOS} GOARCH=${TARGETARCH} VERSION=${VERSION} \
    hack/build.sh /out ./cmd/configdep-apiserver ./cmd/configdep-agent ./cmd/configdep-restarter ./cmd/kubectl-configdep && \
    touch --date=@${SOURCE_DATE_EPOCH} /out/*

FROM ${BASE_IMAGE} AS common
ARG BASE_IMAGE
ARG VERSION=devel
ARG REVISION=unknown
# RFC 3339, the same as SOURCE_DATE_EPOCH.
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.url="https://github.com/configdep/configdep" \
      org.opencontainers.image.source="https://github.com/configdep/configdep" \
      org.opencontainers.image.documentation="https://github.com/configdep/configdep/tree/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="configdep" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
# By number, so that runAsNonRoot can tell that it is not root.
USER 65532:65532

FROM common AS agent
LABEL org.opencontainers.image.title="configdep-agent" \
      org.opencontainers.image.description="Keeps the files of an application equal to ConfigMaps and Secrets, and has it read them again"
# "configdep-agent restarter" becomes the program beside it, which takes less memory.
COPY --from=build /out/configdep-agent /out/configdep-restarter /
ENTRYPOINT ["/configdep-agent"]

FROM common AS plugin
LABEL org.opencontainers.image.title="kubectl-configdep" \
      org.opencontainers.image.description="Shows what runs with old content of ConfigMaps and Secrets, restarts it, and waits for it"
COPY --from=build /out/kubectl-configdep /
ENTRYPOINT ["/kubectl-configdep"]

# The last stage is what is built without a target.
FROM common AS server
LABEL org.opencontainers.image.title="configdep-apiserver" \
      org.opencontainers.image.description="Kubernetes API server that shows which workloads depend on which ConfigMaps and Secrets, and restarts them"
COPY --from=build /out/configdep-apiserver /
ENTRYPOINT ["/configdep-apiserver"]
