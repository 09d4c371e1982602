// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"slices"
	"strings"
	"testing"

	"github.com/configdep/configdep/pkg/notify"
)

func TestInsteadOfRestarts(t *testing.T) {
	c, errs := InsteadOfRestarts("https://hooks.example.com/x", "eu-1")
	if len(errs) > 0 || c.Source != "/configdep/eu-1" || !slices.Equal(c.Events, []notify.What{notify.WouldRestart}) {
		t.Errorf("destination = %+v, errors = %v; want the event WouldRestart of /configdep/eu-1", c, errs)
	}
	if _, errs := InsteadOfRestarts("hooks.example.com/s3cret", ""); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "--webhook-url: must be ") || strings.Contains(errs[0].Error(), "s3cret") {
		t.Errorf("a URL without a scheme: %v, want an error about --webhook-url without its value", errs)
	}
}
