// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package filters wraps the handlers of the server. It limits watches, spreads them over the replicas and ends stalled
// ones, and makes clients disconnect before a server shuts down.
package filters

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
)

// WithWatches wraps the handler of the API with the filters for watches. It needs the authenticated user.
func WithWatches(api http.Handler, maxPerUser int, codecs runtime.NegotiatedSerializer) http.Handler {
	limit, watches := &watchLimit{most: maxPerUser, codecs: codecs}, &spread{most: watchesPerConnection}
	return limit.handler(watches.handler(endStalled(api, stalledAfter)))
}
