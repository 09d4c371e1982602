// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that this package starts may outlive its context. The storage tests of
// kube-apiserver leave watches unread, of which the filter that converts their objects
// does not end.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"))
}
