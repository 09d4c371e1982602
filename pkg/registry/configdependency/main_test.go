// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that this package starts may outlive its context.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
