// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"fmt"

	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/notify/webhook"
)

// Instead is the name of the destination of Reloader's flag --webhook-url.
const Instead = "webhook-url"

// InsteadOfRestarts returns the destination that is called when a workload would be restarted. The cluster is its name,
// or empty.
func InsteadOfRestarts(url, cluster string) (webhook.Config, []error) {
	c := webhook.Config{Name: Instead, URL: url, Format: webhook.Generic, Events: []notify.What{notify.WouldRestart}, Source: sourceOf(cluster)}
	var errs []error
	for _, err := range c.Validate() {
		errs = append(errs, fmt.Errorf("--%s: %s", Instead, err.Problem))
	}
	return c, errs
}
