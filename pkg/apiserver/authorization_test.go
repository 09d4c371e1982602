package apiserver

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// A right to all objects is asked for first, and whatever is said to that, a right to the object alone counts.
func TestForAllFirst(t *testing.T) {
	const allow, deny, none = authorizer.DecisionAllow, authorizer.DecisionDeny, authorizer.DecisionNoOpinion
	get := authorizer.AttributesRecord{Verb: "get", Namespace: "shop", APIGroup: "configdep.io", Resource: "configdependencies", Name: "deployment.web", ResourceRequest: true}
	with := func(change func(*authorizer.AttributesRecord)) authorizer.AttributesRecord {
		a := get
		change(&a)
		return a
	}
	both := []string{"", "deployment.web"}
	for name, tt := range map[string]struct {
		request  authorizer.AttributesRecord
		all, one authorizer.Decision
		err      error // of the first answer
		want     authorizer.Decision
		asked    []string // the names
	}{
		"all are allowed":                 {get, allow, none, nil, allow, []string{""}},
		"the object alone is":             {get, none, allow, nil, allow, both},
		"all are denied, and it is not":   {get, deny, allow, nil, allow, both},
		"neither is allowed":              {get, none, none, nil, none, both},
		"the object is denied":            {get, none, deny, nil, deny, both},
		"the first answer is an error":    {get, allow, none, errors.New("timeout"), none, both},
		"a list":                          {with(func(a *authorizer.AttributesRecord) { a.Verb, a.Name = "list", "" }), allow, none, nil, allow, []string{""}},
		"a watch of one object":           {with(func(a *authorizer.AttributesRecord) { a.Verb = "watch" }), allow, none, nil, none, both[1:]},
		"its pods":                        {with(func(a *authorizer.AttributesRecord) { a.Subresource = "pods" }), allow, none, nil, none, both[1:]},
		"a Reload":                        {with(func(a *authorizer.AttributesRecord) { a.Verb, a.Subresource = "create", "reload" }), allow, none, nil, none, both[1:]},
		"a resource of another API group": {with(func(a *authorizer.AttributesRecord) { a.APIGroup = "example.com" }), allow, none, nil, none, both[1:]},
		"another resource":                {with(func(a *authorizer.AttributesRecord) { a.Resource = "others" }), allow, none, nil, none, both[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			f := forAllFirst{authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if asked = append(asked, a.GetName()); a.GetName() != "" {
					return tt.one, "", nil
				}
				if a.GetNamespace() != tt.request.Namespace || a.GetVerb() != tt.request.Verb || a.GetResource() != tt.request.Resource {
					t.Errorf("another request was asked about: %v", a)
				}
				return tt.all, "", tt.err
			})}
			got, _, err := f.Authorize(t.Context(), tt.request)
			if got != tt.want || err != nil || !slices.Equal(asked, tt.asked) {
				t.Errorf("decision %v (%v) after asking for %q, want %v after %q", got, err, asked, tt.want, tt.asked)
			}
		})
	}
}
