package apiserver

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// forAllFirst asks whether the caller may get every ConfigDependency of a namespace before it asks for a single one: a request
// without a name means all (authorization/v1, ResourceAttributes), and its answer is in the cache for the next names. Who
// reads many objects one by one costs kube-apiserver one SubjectAccessReview then, and not one each. If the answer is no,
// a rule may still name the object.
type forAllFirst struct{ authorizer.Authorizer }

// Authorize is part of authorizer.Authorizer.
func (f forAllFirst) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "get" && a.GetName() != "" && a.GetResource() == "configdependencies" && a.GetSubresource() == "" &&
		a.GetAPIGroup() == v1alpha1.SchemeGroupVersion.Group {
		decision, reason, err := f.Authorizer.Authorize(ctx, withoutName{a})
		if err == nil && decision == authorizer.DecisionAllow {
			return decision, reason, nil
		}
	}
	return f.Authorizer.Authorize(ctx, a)
}

// withoutName is a request for all objects.
type withoutName struct{ authorizer.Attributes }

// GetName is part of authorizer.Attributes.
func (withoutName) GetName() string { return "" }
