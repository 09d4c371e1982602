// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// For priority and fairness, a large list has more than one seat, and a request for one object has one.
func TestListsCountAsWhatTheyAre(t *testing.T) {
	for name, tt := range map[string]struct {
		verb, resource, query string
		objects, size         int
		one                   bool
	}{
		"a large list":                   {"list", "configdependencies", "", 50_000, 1500, false},
		"a list of few objects":          {"list", "configdependencies", "", 10, 1500, true},
		"an empty list":                  {"list", "configdependencies", "", 0, 0, true},
		"a page of a large list":         {"list", "configdependencies", "limit=10", 50_000, 1500, true},
		"a watch with initial events":    {"watch", "configdependencies", "resourceVersion=0", 50_000, 1500, false},
		"a watch that resumes":           {"watch", "configdependencies", "resourceVersion=7", 50_000, 1500, true},
		"one object":                     {"get", "configdependencies", "", 50_000, 1500, true},
		"a list of another resource":     {"list", "others", "", 50_000, 1500, true},
		"a list of fewer, large objects": {"list", "configdependencies", "", 100, 100_000, false},
	} {
		t.Run(name, func(t *testing.T) {
			counts := objectCounts(func() (int, int) { return tt.objects, tt.size })
			estimate := flowcontrolrequest.NewWorkEstimator(counts.Get, func(*apirequest.RequestInfo) int { return 0 },
				flowcontrolrequest.DefaultWorkEstimatorConfig(), func(string) uint64 { return 10 })
			r := httptest.NewRequest(http.MethodGet, "/apis/configdep.io/v1alpha1/configdependencies?"+tt.query, nil)
			info := &apirequest.RequestInfo{IsResourceRequest: true, Verb: tt.verb, APIGroup: "configdep.io", APIVersion: "v1alpha1", Resource: tt.resource}
			seats := estimate(r.WithContext(apirequest.WithRequestInfo(r.Context(), info)), "schema", "level").InitialSeats
			if (seats == 1) != tt.one {
				t.Errorf("got %d seats, want one: %t", seats, tt.one)
			}
		})
	}
}
