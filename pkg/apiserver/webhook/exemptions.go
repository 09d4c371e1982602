// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/configdep/configdep/pkg/apiserver/options"
)

// Exemptions are the namespaces whose workloads the webhook admits unchanged. The server checks this itself because
// callers other than kube-apiserver do not follow the webhook configuration.
type Exemptions struct {
	namespaces []string        // including the server's own
	selector   labels.Selector // selects those that are not exempt
}

// NewExemptions returns the Exemptions of options.
func NewExemptions(o options.Completed) (Exemptions, error) {
	selector, err := labels.Parse(o.WebhookSelector)
	if err != nil {
		return Exemptions{}, fmt.Errorf("--webhook-namespace-selector: %w", err)
	}
	return Exemptions{append([]string{o.Namespace}, o.WebhookExempt...), selector}, nil
}

// Exempt reports whether a namespace is exempt. With a selector, this includes namespaces that are not known, as they
// have no labels to select.
func (e Exemptions) Exempt(namespace string, known corev1listers.NamespaceLister) bool {
	if slices.Contains(e.namespaces, namespace) {
		return true
	}
	if e.selector.Empty() {
		return false
	}
	o, err := known.Get(namespace)
	return err != nil || !e.selector.Matches(labels.Set(o.Labels))
}
