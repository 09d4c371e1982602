// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package filters wraps the handlers of the server: it bounds watches, spreads them over the replicas, ends those
// that are stalled, and sends clients away before a server ends.
package filters

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
)

// WithWatches is for the API, below authentication: what is said there of watches.
func WithWatches(api http.Handler, maxPerUser int, codecs runtime.NegotiatedSerializer) http.Handler {
	limit, watches := &watchLimit{most: maxPerUser, codecs: codecs}, &spread{most: watchesPerConnection}
	return limit.handler(watches.handler(endStalled(api, stalledAfter)))
}
