// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"
	"testing/synctest"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/configdep/configdep/pkg/certificate"
)

// The server is not registered before kube-apiserver can reach a replica by the Service.
func TestAwaitEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endpointSlice := func(service string, ready *bool) *discoveryv1.EndpointSlice {
			return &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
				Endpoints:  []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: ready}}},
			}
		}
		client := fake.NewClientset(endpointSlice("other", new(true)), endpointSlice("ours", new(false)))
		done := make(chan error, 1)
		go func() {
			done <- awaitEndpoint(t.Context(), client, certificate.Service{Namespace: "ns", Name: "ours", Port: 443})
		}()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("it returned without a ready endpoint (error %v)", err)
		default:
		}
		if _, err := client.DiscoveryV1().EndpointSlices("ns").Update(t.Context(), endpointSlice("ours", new(true)), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
