package configdependency

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/btree"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// List returns the ConfigDependencies of a namespace, or of all, that the selectors of
// the options match, in the order of namespace and name.
func (r *REST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	if options == nil {
		options = &metainternalversion.ListOptions{}
	}
	page, err := r.page(ctx, options)
	if err != nil {
		return nil, err
	}
	match, err := newMatcher(options.LabelSelector, options.FieldSelector)
	if err != nil {
		return nil, err
	}

	namespace := genericapirequest.NamespaceValue(ctx)
	out := &v1alpha1.ConfigDependencyList{
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(page.revision, 10)},
		Items:    make([]v1alpha1.ConfigDependency, 0, page.capacity(namespace, match)),
	}
	var more int64 // objects that match beyond the limit
	page.objects.AscendGreaterOrEqual(page.from(namespace), func(o *v1alpha1.ConfigDependency) bool {
		if namespace != "" && o.Namespace != namespace {
			return false
		}
		if !match.matches(o) {
			return true
		}
		if options.Limit > 0 && int64(len(out.Items)) == options.Limit {
			more++
			return match.everything() // then the rest is counted
		}
		out.Items = append(out.Items, *o)
		return true
	})
	if more > 0 {
		last := &out.Items[len(out.Items)-1]
		out.Continue, err = storage.EncodeContinue(key(last), "/", int64(page.revision))
		if err != nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("encoding the continue token: %w", err))
		}
		if match.everything() {
			out.RemainingItemCount = &more
		}
	}
	return out, nil
}

// page is what one list request reads.
type page struct {
	objects  *btree.BTreeG[*v1alpha1.ConfigDependency]
	revision uint64                     // the version of the list
	after    *v1alpha1.ConfigDependency // the last object of the page before, or nil
}

// page decides at which version a request is answered. The pages of one list all have
// the version of the first: later ones show the present state of what remains, so that a
// client that watches from that version misses nothing.
func (r *REST) page(ctx context.Context, options *metainternalversion.ListOptions) (*page, error) {
	if options.Continue != "" {
		if v := options.ResourceVersion; v != "" && v != "0" {
			return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		from, revision, err := storage.DecodeContinue(options.Continue, "/")
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
		}
		after, err := placeOf(from)
		if err != nil || revision < 0 {
			return nil, apierrors.NewBadRequest("invalid continue token: it is not one that this server gave out")
		}
		if err := r.views.waitFor(ctx, strconv.FormatInt(revision, 10)); err != nil {
			return nil, err
		}
		objects, _ := r.views.snapshot()
		return &page{objects: objects, revision: uint64(revision), after: after}, nil
	}

	if err := r.views.waitFor(ctx, options.ResourceVersion); err != nil {
		return nil, err
	}
	objects, revision := r.views.snapshot()
	if options.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		want, err := parseVersion(options.ResourceVersion)
		if err != nil {
			return nil, err
		}
		if want != revision {
			return nil, apierrors.NewResourceExpired(fmt.Sprintf("resource version %d is no longer available (the present one is %d)", want, revision))
		}
	}
	return &page{objects: objects, revision: revision}, nil
}

// from returns the place in the order at which reading starts.
func (p *page) from(namespace string) *v1alpha1.ConfigDependency {
	start := at(namespace, "")
	if p.after != nil && before(start, p.after) {
		return at(p.after.Namespace, p.after.Name+"\x00") // the next possible name
	}
	return start
}

// capacity avoids growing a list of everything step by step.
func (p *page) capacity(namespace string, m *matcher) int {
	if namespace == "" && m.everything() && p.after == nil {
		return p.objects.Len()
	}
	return 0
}

func key(o *v1alpha1.ConfigDependency) string { return "/" + o.Namespace + "/" + o.Name }

// placeOf parses a key of a continue token.
func placeOf(key string) (*v1alpha1.ConfigDependency, error) {
	parts := strings.Split(key, "/")
	if len(parts) != 3 || parts[0] != "" || parts[1] == "" || parts[2] == "" {
		return nil, fmt.Errorf("%q is not of the form /namespace/name", key)
	}
	return at(parts[1], parts[2]), nil
}
