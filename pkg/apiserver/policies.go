// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/apis/configdep"
)

// resync is the default resync period of the informers of a generic API server.
const resync = 10 * time.Minute

// newInformers returns the informers of the generic API server, for admission and for priority and fairness.
//
// The ValidatingAdmissionPolicy plugin caches the parameters of every policy in the cluster that has a binding, even if
// the policy can never match a request to this server. Parameters are often ConfigMaps and can be Secrets, and the plugin
// would hold all of these in memory. So the informers drop the parameters of policies that cannot match our API group.
func newInformers(client kubernetes.Interface) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTransform(func(o any) (any, error) {
		if policy, ok := o.(*admissionregistrationv1.ValidatingAdmissionPolicy); ok && !concerns(policy, configdep.GroupName) {
			policy.Spec.ParamKind = nil
		}
		return o, nil
	}))
}

// concerns reports whether a policy can match resources of an API group.
func concerns(policy *admissionregistrationv1.ValidatingAdmissionPolicy, group string) bool {
	return policy.Spec.MatchConstraints != nil &&
		slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
			return slices.Contains(r.APIGroups, "*") || slices.Contains(r.APIGroups, group)
		})
}
