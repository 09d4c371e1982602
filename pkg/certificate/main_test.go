// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// No goroutine of this package may outlive its context.
func TestMain(m *testing.M) {
	// One of the handlers sleeps until a millisecond after the last error. With the clocks of
	// synctest, that may be decades away.
	utilruntime.ErrorHandlers = nil //nolint:reassign // this is what it is for
	goleak.VerifyTestMain(m)
}

// quiet returns a context whose logger does not report errors that a test causes.
func quiet(t *testing.T) context.Context {
	t.Helper()
	return klog.NewContext(t.Context(), klog.Logger{})
}
