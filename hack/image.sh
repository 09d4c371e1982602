#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Builds the container images of server, agent and plugin by docker's BuildKit (make image); hack/image-archive.sh makes
# them without. The plugin's is called kubectl-configdep beside IMAGE, with the same tag:
#
#   IMAGE       what the server's is called                    ghcr.io/configdep/configdep:VERSION
#   AGENT_IMAGE what the agent's is called                     configdep-agent beside IMAGE, with the same tag
#   VERSION     what they say of themselves                    that of git
#   PLATFORMS   such as linux/amd64,linux/arm64                this machine's
#   PUSH        true: into the registry, not to this engine    false
#   BUILD_IMAGE, BASE_IMAGE   other base images; a release that is pushed has to name them by digest, as
#               they are in its configdep-image_VERSION.env (see hack/release.sh)
#   METADATA, AGENT_METADATA, PLUGIN_METADATA   files for what BuildKit says of each image, with its digest as containerimage.digest
#
# The programs in them depend on nothing but the commit and the version of Go; with base images
# by digest, so does the image of each platform. Several platforms need PUSH, as an engine
# holds images of one; nothing is emulated.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'image: %s\n' "$*" >&2; exit 1; }

version=${VERSION:-$(git describe --tags --always --dirty)}
image=${IMAGE:-ghcr.io/configdep/configdep:$version}
agent_image=$(hack/image-beside.sh configdep-agent "$image" "${AGENT_IMAGE:-}")
plugin_image=$(hack/image-beside.sh kubectl-configdep "$image")
push=${PUSH:-false}
[[ $push == true || $push == false ]] || fail "PUSH=$push is neither true nor false"
[[ $push == true || ${PLATFORMS:-} != *,* ]] || fail "an image of several platforms has to be pushed: PUSH=true"
# A release is one by what it says of itself or by what it is called.
release='^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$'
checked=false
for name in "$image" "$agent_image"; do
  tag=${name##*/} tag=${tag#*:}
  [[ $push == true ]] && [[ $version =~ $release || $tag =~ $release ]] || continue
  [[ $version == "$tag" ]] || fail "the image is to be called $name and to say that it is $version: VERSION and the tag in IMAGE have to be the same"
  checked=true
done
[[ $checked == false ]] || hack/release-check.sh "$version"
docker buildx version >/dev/null 2>&1 || fail "docker with buildx is needed (https://docs.docker.com/build/)"

args=(
  --build-arg "VERSION=$version"
  --build-arg "REVISION=$(git rev-parse HEAD)"
  --build-arg "CREATED=$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)"
  --build-arg "SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)"
)
for name in BUILD_IMAGE BASE_IMAGE; do
  [[ -z ${!name:-} ]] || args+=(--build-arg "$name=${!name}")
done
[[ -z ${PLATFORMS:-} ]] || args+=(--platform "$PLATFORMS")
if [[ $push == true ]]; then
  # The attestations say when and where, so they differ from build to build; the images do not.
  # shellcheck disable=SC2054 # the commas are inside of arguments
  args+=(--provenance=mode=max --sbom=true --output type=image,push=true,rewrite-timestamp=true)
else
  args+=(--load)
fi
# The others find the programs of all built.
docker buildx build "${args[@]}" --target server --tag "$image" ${METADATA:+--metadata-file "$METADATA"} .
docker buildx build "${args[@]}" --target agent --tag "$agent_image" ${AGENT_METADATA:+--metadata-file "$AGENT_METADATA"} .
docker buildx build "${args[@]}" --target plugin --tag "$plugin_image" ${PLUGIN_METADATA:+--metadata-file "$PLUGIN_METADATA"} .
