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

// resync is that of the informers of every generic API server.
const resync = 10 * time.Minute

// newInformers returns the informers of the generic API server: those of admission, and of priority and fairness.
//
// The plugin for validating admission policies caches the parameters of every policy of the cluster that is bound, also
// of those that can never concern a request to this server. Parameters are often in ConfigMaps, and can be in Secrets,
// of which it would hold all that there are. So only what may concern our API has parameters here.
func newInformers(client kubernetes.Interface) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTransform(func(o any) (any, error) {
		if policy, ok := o.(*admissionregistrationv1.ValidatingAdmissionPolicy); ok && !concerns(policy, configdep.GroupName) {
			policy.Spec.ParamKind = nil
		}
		return o, nil
	}))
}

// concerns reports whether a policy can match a resource of an API group.
func concerns(policy *admissionregistrationv1.ValidatingAdmissionPolicy, group string) bool {
	return policy.Spec.MatchConstraints != nil &&
		slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
			return slices.Contains(r.APIGroups, "*") || slices.Contains(r.APIGroups, group)
		})
}
