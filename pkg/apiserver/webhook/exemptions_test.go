// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/configdep/configdep/pkg/apiserver/options"
)

// What is exempt in the webhook configuration is exempt in the server, for callers that do not go by it.
func TestExemptions(t *testing.T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for name, labels := range map[string]map[string]string{"shop": {"team": "shop"}, "vault": {"team": "security"}, "kube-system": nil, "configdep-system": nil} {
		if err := indexer.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		exempt   []string
		selector string
		admitted string
	}{
		"by default":                {[]string{"kube-system"}, "", "shop vault unknown"},
		"none but the server's own": {nil, "", "kube-system shop vault unknown"},
		"by name":                   {[]string{"kube-system", "vault"}, "", "shop unknown"},
		"by label":                  {nil, "team=shop", "shop"},
		"by another label":          {nil, "team!=security", "kube-system shop"}, // one that is not known is not selected
		"by name and label":         {[]string{"shop"}, "team", "vault"},
	} {
		o := options.NewOptions()
		o.Namespace, o.WebhookExempt, o.WebhookSelector = "configdep-system", tt.exempt, tt.selector
		e, err := NewExemptions(o.Complete())
		if err != nil {
			t.Fatal(err)
		}
		var admitted []string
		for _, namespace := range []string{"configdep-system", "kube-system", "shop", "vault", "unknown"} {
			if !e.Exempt(namespace, corev1listers.NewNamespaceLister(indexer)) {
				admitted = append(admitted, namespace)
			}
		}
		if got := strings.Join(admitted, " "); got != tt.admitted {
			t.Errorf("%s: workloads of %q are looked at, not of %q", name, got, tt.admitted)
		}
	}
}

// A selector that cannot be parsed never leaves all namespaces open.
func TestExemptions_Invalid(t *testing.T) {
	o := options.NewOptions()
	o.WebhookSelector = "=="
	if _, err := NewExemptions(o.Complete()); err == nil {
		t.Error("no error")
	}
}
