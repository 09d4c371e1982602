// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestParseWorkload(t *testing.T) {
	for arg, want := range map[string]string{
		"deploy/web": "deployment.web", "deployment/web": "deployment.web", "Deployment/web": "deployment.web", "deployment.web": "deployment.web",
		"deployments.apps/web": "deployment.web", "sts/db": "statefulset.db", "cj/report": "cronjob.report", "rollout/web.v2": "rollout.web.v2",
		"po/a.b": "pod.a.b", "configdependency.configdep.io/deployment.web": "deployment.web", "web": "", "/web": "", "deploy/": "", "a/b/c": "", "": "",
	} {
		if got, err := parseWorkload(arg); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", arg, got, err, want)
		}
	}
}

func TestParseSource(t *testing.T) {
	for arg, want := range map[string]string{
		"secret/db": "Secret/db", "Secret/db": "Secret/db", "cm/app": "ConfigMap/app", "configmaps/app": "ConfigMap/app", "spc/keys": "SecretProviderClass/keys",
		"db": "/", "pod/x": "/", "secret/": "/", "secret/a/b": "/",
	} {
		if got, err := parseSource(arg); got.String() != want || (err == nil) != (want != "/") {
			t.Errorf("%q: %s, %v, want %s", arg, got, err, want)
		}
	}
}

func TestExplain(t *testing.T) {
	resource := schema.GroupResource{Group: "configdep.io", Resource: "configdependencies"}
	absent := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resource, "", "404 page not found", 0, true)
	for want, err := range map[string]error{
		"is not installed in this cluster": absent,
		`"deployment.web" not found`:       apierrors.NewNotFound(resource, "deployment.web"),
		"does not answer":                  apierrors.NewServiceUnavailable("no endpoints"),
		"may be older than this plugin":    apierrors.NewMethodNotSupported(resource, "create"),
		"context canceled":                 context.Canceled,
	} {
		if got := explain(err); !strings.Contains(got.Error(), want) {
			t.Errorf("%v, want %s", got, want)
		}
	}
}
