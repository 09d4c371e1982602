# The image of configdep-apiserver: one static program and what TLS needs.
#
#   make image IMAGE=example.com/configdep-apiserver:v0.1.0
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=v0.1.0 .
ARG BUILD_IMAGE=golang:1.26
ARG BASE_IMAGE=gcr.io/distroless/static:nonroot

# Compiles on the platform of the builder for that of the image, which needs no emulation.
FROM --platform=$BUILDPLATFORM ${BUILD_IMAGE} AS build
WORKDIR /src
# Modules are fetched again only when they change.
COPY go.mod go.sum ./
RUN go mod download
COPY cmd/ cmd/
COPY pkg/ pkg/
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=devel
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X github.com/configdep/configdep/pkg/version.version=${VERSION}" \
    -o /out/configdep-apiserver ./cmd/configdep-apiserver

FROM ${BASE_IMAGE}
ARG VERSION=devel
LABEL org.opencontainers.image.title="configdep-apiserver" \
      org.opencontainers.image.description="Kubernetes API server that shows which workloads depend on which ConfigMaps and Secrets, and restarts them" \
      org.opencontainers.image.source="https://github.com/configdep/configdep" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /out/configdep-apiserver /configdep-apiserver
# By number, so that runAsNonRoot can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["/configdep-apiserver"]
