package configdependency

import (
	"context"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// REST is the storage of the resource configdependencies.
type REST struct {
	tableConvertor
	views *Views
}

var (
	_ rest.Storage              = &REST{}
	_ rest.Scoper               = &REST{}
	_ rest.SingularNameProvider = &REST{}
	_ rest.ShortNamesProvider   = &REST{}
	_ rest.CategoriesProvider   = &REST{}
	_ rest.Getter               = &REST{}
	_ rest.Lister               = &REST{}
)

// NewREST returns storage that answers from views.
func NewREST(views *Views) *REST { return &REST{views: views} }

// New returns an empty ConfigDependency.
func (*REST) New() runtime.Object { return &v1alpha1.ConfigDependency{} }

// NewList returns an empty list of ConfigDependencies.
func (*REST) NewList() runtime.Object { return &v1alpha1.ConfigDependencyList{} }

// Destroy releases nothing.
func (*REST) Destroy() {}

// NamespaceScoped is true.
func (*REST) NamespaceScoped() bool { return true }

// GetSingularName returns the name under which kubectl takes one object.
func (*REST) GetSingularName() string { return "configdependency" }

// ShortNames returns the short name for kubectl.
func (*REST) ShortNames() []string { return []string{"cfgdep"} }

// Categories returns a category of our own. It is not "all", because "kubectl delete all"
// would then try to delete what cannot be deleted.
func (*REST) Categories() []string { return []string{"configdep"} }

// Get returns one ConfigDependency, at least as new as the resourceVersion of the options.
func (r *REST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	if err := r.views.waitFor(ctx, options.ResourceVersion); err != nil {
		return nil, err
	}
	found, err := r.views.Lookup(genericapirequest.NamespaceValue(ctx), name)
	if err != nil {
		return nil, err
	}
	out := *found // encoding sets the type of the copy
	return &out, nil
}

// Lookup returns the ConfigDependency of a name, which nobody may change. Its errors are
// API errors: not found, or unavailable before the first sync.
func (v *Views) Lookup(namespace, name string) (*v1alpha1.ConfigDependency, error) {
	if _, synced := v.state(); !synced {
		return nil, NotReady()
	}
	found := v.get(namespace, name)
	if found == nil {
		return nil, apierrors.NewNotFound(v1alpha1.Resource("configdependencies"), name)
	}
	return found, nil
}

// NotReady is the answer until the first sync: 503, and try again in a second.
func NotReady() error {
	err := apierrors.NewServiceUnavailable("the dependency index has not synced yet")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// freshness is how long a request waits for a version that has not been seen yet, as the
// watch cache of kube-apiserver does.
const freshness = 3 * time.Second

// waitFor waits until everything up to a version has been seen; "" and "0" are satisfied
// by any state.
func (v *Views) waitFor(ctx context.Context, version string) error {
	current, synced := v.state()
	if !synced {
		return NotReady()
	}
	if version == "" || version == "0" {
		return nil
	}
	want, err := parseVersion(version)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, freshness, true, func(context.Context) (bool, error) {
		current, _ = v.state()
		return current >= want, nil
	})
	if err != nil {
		return storage.NewTooLargeResourceVersionError(want, current, 1)
	}
	return nil
}

func parseVersion(version string) (uint64, error) {
	v, err := strconv.ParseUint(version, 10, 63)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q: it is not a version that this server gave out", version))
	}
	return v, nil
}
