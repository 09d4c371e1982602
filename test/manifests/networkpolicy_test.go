// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// peer is the other side of a connection.
type peer struct {
	address   string
	namespace string // of a pod in the pod network; other peers only have an address
	labels    labels.Set
}

var (
	kubeAPIServer = peer{address: "10.0.0.2"}
	serviceIP     = peer{address: "10.96.0.1"} // of kube-apiserver, for network plugins that apply policies before the Service's address is translated
	internet      = peer{address: "203.0.113.7"}
	prometheus    = peer{"10.244.1.9", "monitoring", labels.Set{"app.kubernetes.io/name": "prometheus"}}
	stranger      = peer{"10.244.1.66", "shop", labels.Set{"app": "web"}}
	gatekeeper    = peer{"10.244.2.4", "gatekeeper-system", labels.Set{"control-plane": "controller-manager"}}
	coreDNS       = peer{"10.244.0.2", "kube-system", labels.Set{"k8s-app": "kube-dns"}}
	nodeLocalDNS  = peer{address: "169.254.20.10"}
	metadata      = peer{address: "169.254.169.254"} // where cloud providers serve credentials
)

// flow is a connection to the server (in) or from the server.
type flow struct {
	in       bool
	peer     peer
	port     int32
	protocol corev1.Protocol
}

// flows are connections that must be allowed or denied. With addresses, more of them must be denied.
var flows = map[string]struct {
	flow
	allowed, withAddresses bool
}{
	"kube-apiserver calls the API":                         {flow{true, kubeAPIServer, 6443, corev1.ProtocolTCP}, true, true},
	"Prometheus scrapes":                                   {flow{true, prometheus, 6443, corev1.ProtocolTCP}, true, true},
	"a stranger calls the API":                             {flow{true, stranger, 6443, corev1.ProtocolTCP}, true, false},
	"a stranger tries another port":                        {flow{true, stranger, 8080, corev1.ProtocolTCP}, false, false},
	"kube-apiserver tries another port":                    {flow{true, kubeAPIServer, 8080, corev1.ProtocolTCP}, false, false},
	"a stranger sends UDP":                                 {flow{true, stranger, 6443, corev1.ProtocolUDP}, false, false},
	"DNS over UDP":                                         {flow{false, coreDNS, 53, corev1.ProtocolUDP}, true, true},
	"DNS over TCP":                                         {flow{false, coreDNS, 53, corev1.ProtocolTCP}, true, true},
	"DNS on the node":                                      {flow{false, nodeLocalDNS, 53, corev1.ProtocolUDP}, true, true},
	"DNS on OpenShift":                                     {flow{false, coreDNS, 5353, corev1.ProtocolUDP}, true, true},
	"to kube-apiserver, at the address of its Service":     {flow{false, serviceIP, 443, corev1.ProtocolTCP}, true, true},
	"to kube-apiserver, at its own address":                {flow{false, kubeAPIServer, 6443, corev1.ProtocolTCP}, true, true},
	"to another port of kube-apiserver's node":             {flow{false, kubeAPIServer, 2379, corev1.ProtocolTCP}, false, false},
	"to an admission webhook for Reloads":                  {flow{false, gatekeeper, 8443, corev1.ProtocolTCP}, true, true},
	"to a webhook on the port that managed clusters allow": {flow{false, gatekeeper, 10250, corev1.ProtocolTCP}, true, true},
	"to a webhook outside of the cluster":                  {flow{false, internet, 8443, corev1.ProtocolTCP}, false, false},
	"to any address on port 443":                           {flow{false, internet, 443, corev1.ProtocolTCP}, true, false},
	"to the metadata service of the cloud":                 {flow{false, metadata, 80, corev1.ProtocolTCP}, false, false},
	"UDP to a pod":                                         {flow{false, stranger, 4789, corev1.ProtocolUDP}, false, false},
}

// The policy allows the necessary connections, in both directions, and no others. The ports of webhooks are the ports
// of their pods: with a policy that allows only the ports of Services, the server cannot call the webhooks, and Reloads
// are then admitted unchecked or all refused.
func TestNetworkPolicyLetsThroughWhatIsNeeded(t *testing.T) {
	withAddresses, err := template(t, "--values", mustAbs(t, filepath.Join("testdata", "addresses.yaml")))
	if err != nil {
		t.Fatalf("%v:\n%s", err, withAddresses)
	}
	for name, test := range map[string]struct {
		objects   map[objectKey]*unstructured.Unstructured
		addresses bool
	}{
		"without addresses": {rendered(t, "network-policy.yaml"), false},
		"with addresses":    {decode(t, name, []byte(withAddresses)), true},
	} {
		t.Run(name, func(t *testing.T) {
			policy := networkPolicy(t, test.objects)
			for name, f := range flows {
				want := f.allowed
				if test.addresses {
					want = f.withAddresses
				}
				if got := allows(t, policy, &f.flow); got != want {
					t.Errorf("%s: allowed = %v, want %v", name, got, want)
				}
			}
		})
	}
}

// A policy that restricts less than it seems is worse than none: it selects the pods of the server, applies to both
// directions, and allows kube-apiserver to reach all ports of the pods, except that of metrics without TLS, which only clients
// that scrape can reach.
func TestNetworkPolicySelectsTheServer(t *testing.T) {
	seen := 0
	for _, file := range renderedFiles(t) {
		objects := rendered(t, file)
		if !slices.ContainsFunc(slices.Collect(maps.Keys(objects)), func(k objectKey) bool { return k.kind == "NetworkPolicy" }) {
			continue
		}
		seen++
		policy, deployment := networkPolicy(t, objects), &appsv1.Deployment{}
		convert(t, only(t, objects, "Deployment"), deployment)
		if !selects(t, &policy.Spec.PodSelector, deployment.Spec.Template.Labels) || policy.Namespace != deployment.Namespace {
			t.Errorf("%s: the policy does not select the pods of the server", file)
		}
		if want := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}; !slices.Equal(policy.Spec.PolicyTypes, want) {
			t.Errorf("%s: policy types = %v, want both", file, policy.Spec.PolicyTypes)
		}
		for _, p := range deployment.Spec.Template.Spec.Containers[0].Ports {
			if got, want := allows(t, policy, &flow{true, kubeAPIServer, p.ContainerPort, corev1.ProtocolTCP}), p.Name != "metrics"; got != want {
				t.Errorf("%s: port %s (%d): allowed for kube-apiserver = %v, want %v", file, p.Name, p.ContainerPort, got, want)
			}
		}
	}
	if seen < 2 {
		t.Errorf("found %d policies, want at least 2", seen)
	}
}

// networkPolicy returns the only NetworkPolicy.
func networkPolicy(t *testing.T, objects map[objectKey]*unstructured.Unstructured) *networkingv1.NetworkPolicy {
	t.Helper()
	policy := &networkingv1.NetworkPolicy{}
	convert(t, only(t, objects, "NetworkPolicy"), policy)
	return policy
}

// only returns the only object of a kind.
func only(t *testing.T, objects map[objectKey]*unstructured.Unstructured, kind string) (found *unstructured.Unstructured) {
	t.Helper()
	n := 0
	for key, o := range objects {
		if key.kind == kind {
			found = o
			n++
		}
	}
	if n != 1 {
		t.Fatalf("found %d objects of kind %s, want 1", n, kind)
	}
	return found
}

func convert(t *testing.T, o *unstructured.Unstructured, into any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		t.Fatal(err)
	}
}

// allows evaluates a policy as the API of networking.k8s.io/v1 documents. Namespaces have no labels but their names.
func allows(t *testing.T, policy *networkingv1.NetworkPolicy, f *flow) bool {
	t.Helper()
	rule := func(ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer) bool {
		return (len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool { return isPort(t, &p, f) })) &&
			(len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool { return isPeer(t, policy, &p, &f.peer) }))
	}
	if f.in {
		return slices.ContainsFunc(policy.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool { return rule(r.Ports, r.From) })
	}
	return slices.ContainsFunc(policy.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool { return rule(r.Ports, r.To) })
}

func isPort(t *testing.T, p *networkingv1.NetworkPolicyPort, f *flow) bool {
	t.Helper()
	if p.EndPort != nil || p.Port != nil && p.Port.StrVal != "" {
		t.Fatalf("this test does not support the port %v", p)
	}
	protocol := corev1.ProtocolTCP
	if p.Protocol != nil {
		protocol = *p.Protocol
	}
	return protocol == f.protocol && (p.Port == nil || p.Port.IntVal == f.port)
}

func isPeer(t *testing.T, policy *networkingv1.NetworkPolicy, p *networkingv1.NetworkPolicyPeer, other *peer) bool {
	t.Helper()
	if p.IPBlock != nil {
		in := func(cidr string) bool {
			return netip.MustParsePrefix(cidr).Contains(netip.MustParseAddr(other.address))
		}
		return in(p.IPBlock.CIDR) && !slices.ContainsFunc(p.IPBlock.Except, in)
	}
	if other.namespace == "" { // selectors only match pods
		return false
	}
	inNamespace := other.namespace == policy.Namespace
	if p.NamespaceSelector != nil {
		inNamespace = selects(t, p.NamespaceSelector, labels.Set{corev1.LabelMetadataName: other.namespace})
	}
	return inNamespace && (p.PodSelector == nil || selects(t, p.PodSelector, other.labels))
}

func selects(t *testing.T, selector *metav1.LabelSelector, set labels.Set) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(fmt.Errorf("a selector: %w", err))
	}
	return s.Matches(set)
}
