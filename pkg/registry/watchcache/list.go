// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/btree"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"
)

// ListOptions says what to list, and as of when.
type ListOptions[T Object] struct {
	Namespace, Name      string       // empty: all
	Matches              func(T) bool // nil: all
	ResourceVersion      string
	ResourceVersionMatch metav1.ResourceVersionMatch
	Limit                int64
	Continue             string
	// Size returns about how many bytes an object has in the answer; nil: it is not asked. If PageBytes is not 0, a page ends once it has
	// so many, although more objects are within the limit.
	Size      func(T) int
	PageBytes int
}

// List is the answer to a list. The objects are those of the cache and must not be
// changed.
type List[T Object] struct {
	Items           []T
	ResourceVersion string
	Continue        string
	// Remaining is the number of objects beyond the limit; nil when it is not known.
	Remaining *int64
	// Bytes is the sum of the sizes of the objects.
	Bytes int
}

// freshness is how long a request waits for a version that has not been seen yet, as the
// watch cache of kube-apiserver does.
const freshness = 3 * time.Second

// Get returns an object, which must not be changed, and whether it is there. The state is
// at least as new as a version. Its errors are API errors. What kube-apiserver answers to a get is never
// that the version has expired, so that clients do not expect it: also of one of another replica that
// this one cannot compare with its own, it says that it has not come.
func (c *Cache[T]) Get(ctx context.Context, key, notOlderThan string) (o T, found bool, err error) {
	v, err := parseVersion(notOlderThan)
	if err != nil {
		return o, false, apierrors.NewBadRequest(err.Error())
	}
	now, err := c.await(ctx, v, true)
	if err != nil {
		return o, false, err
	}
	o, found = now.get(key)
	return o, found, nil
}

// await returns a snapshot in which everything up to a version has been applied, once there is
// one. While this replica cannot compare a version with its own, it waits as well, or answers at once
// that it has expired: then lists begin again.
func (c *Cache[T]) await(ctx context.Context, v version, patient bool) (*snapshot[T], error) {
	ctx, cancel := context.WithTimeout(ctx, freshness)
	defer cancel()
	for {
		next := c.next()
		now := c.latest.Load()
		switch {
		case !now.synced:
			return nil, c.NotReady()
		case now.version.watermark() >= v.watermark() && (v == 0 || !now.alone()), v != 0 && now.own(v):
			return now, nil
		case v != 0 && now.alone() && !patient:
			return nil, apierrors.NewResourceExpired(fmt.Sprintf("resource version %s is of another replica, which this one cannot compare with its own (%s)", v, now.version))
		}
		select {
		case <-next:
		case <-ctx.Done():
			err := storage.NewTooLargeResourceVersionError(uint64(v), uint64(now.version), 1)
			if known, ok := err.(*apierrors.StatusError); ok && now.alone() { //nolint:errorlint // it is not wrapped
				known.ErrStatus.Message += ": it is of another replica, which this one cannot compare with its own"
			}
			return nil, err
		}
	}
}

// List returns objects in the order of their keys. Its errors are API errors.
func (c *Cache[T]) List(ctx context.Context, o ListOptions[T]) (*List[T], error) {
	r, err := o.parse()
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	now, err := c.await(ctx, r.at, false)
	if err != nil {
		return nil, err
	}
	if r.after == "" && now.young() {
		o.Limit = 0
	}
	objects, v, err := now.view(r)
	if err != nil {
		return nil, err
	}
	out := &List[T]{ResourceVersion: v.String()}
	paged := v
	if !now.exclusive(r) {
		paged = v.shared() // other pages may come from elsewhere
	}
	if r.after != "" {
		out.ResourceVersion = paged.String()
	}
	within := scope{o.Namespace, o.Name}
	if within == (scope{}) && o.Matches == nil && o.Limit == 0 {
		out.Items = make([]T, 0, objects.Len())
	}
	var more int64
	last := ""
	ascend(objects, within, r.after, func(object T) bool {
		if o.Limit > 0 && (int64(len(out.Items)) == o.Limit || o.PageBytes > 0 && out.Bytes >= o.PageBytes) {
			more++
			return o.Matches == nil // then the rest is counted
		}
		if o.Matches != nil {
			if err = ctx.Err(); err != nil { // matching may take long
				return false
			}
			if !o.Matches(object) {
				return true
			}
		}
		out.Items = append(out.Items, object)
		if o.Size != nil {
			out.Bytes += o.Size(object)
		}
		last = c.Key(object)
		return true
	})
	if err != nil {
		return nil, apierrors.NewTimeoutError(fmt.Sprintf("the list was not completed: %v", err), 0)
	}
	if more > 0 {
		out.ResourceVersion = paged.String()
		if out.Continue, err = encodeContinue(v, last, int64(paged)); err != nil {
			return nil, err
		}
		if o.Matches == nil {
			out.Remaining = &more
		}
	}
	return out, nil
}

// exclusive reports whether no other replica has contributed to a list, or may. It is so for
// one that begins while versions of others mean nothing: no watch could begin from a
// version that belongs to no replica. The token says so, because a neighbour may know better.
func (s *snapshot[T]) exclusive(r request) bool { return r.own || r.after == "" && s.alone() }

// request is what a list asks for.
type request struct {
	at    version
	exact bool   // exactly that version
	after string // the key after which a later page goes on
	own   bool   // all pages come from the replica that began the list
}

var errContinue = errors.New("invalid continue token: it is not one that this server gave out")

func (o *ListOptions[T]) parse() (r request, err error) {
	if o.Continue != "" {
		return o.parseContinue()
	}
	if r.at, err = parseVersion(o.ResourceVersion); err != nil {
		return r, err
	}
	switch o.ResourceVersionMatch {
	case metav1.ResourceVersionMatchExact:
		r.exact = true
	case metav1.ResourceVersionMatchNotOlderThan:
	case "":
		r.exact = o.Limit > 0 && r.at > 0 // as it has always been
	default:
		return r, fmt.Errorf("unknown resource version match %q", o.ResourceVersionMatch)
	}
	return r, nil
}

// parseContinue parses a token: the version of the list, and as a key the version of the
// replica that began it and the last key of the page before.
func (o *ListOptions[T]) parseContinue() (r request, err error) {
	if o.ResourceVersion != "" && o.ResourceVersion != "0" {
		return r, errors.New("specifying resource version is not allowed when using continue")
	}
	key, rv, err := storage.DecodeContinue(o.Continue, "/")
	if err != nil {
		return r, fmt.Errorf("invalid continue token: %w", err)
	}
	began, after, _ := strings.Cut(strings.TrimPrefix(key, "/"), "/")
	if after == "" {
		return r, errContinue
	}
	r.after = after
	if rv < 0 { // the token of an answer that another had expired
		return r, nil
	}
	if r.at, err = parseVersion(began); err != nil || version(rv) != r.at && version(rv) != r.at.shared() {
		return r, errContinue
	}
	r.exact, r.own = true, version(rv) != r.at.shared()
	return r, nil
}

func encodeContinue(v version, after string, rv int64) (string, error) {
	token, err := storage.EncodeContinue("/"+v.String()+"/"+after, "/", rv)
	if err != nil {
		return "", apierrors.NewInternalError(fmt.Errorf("encoding the continue token: %w", err))
	}
	return token, nil
}

// expired is the answer when what is asked for is not known any more. Clients know the
// words of kube-apiserver, and that they may go on with the token in the answer if they do
// not mind that the pages show different states.
func (r request) expired(now version) error {
	if r.after == "" {
		return apierrors.NewResourceExpired(fmt.Sprintf("The resourceVersion for the provided list is too old: %s (%s)", r.at, now))
	}
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results, as they are now.")
	token, failed := encodeContinue(r.at, r.after, -1)
	if failed != nil {
		return failed
	}
	err.ErrStatus.Continue = token
	return err
}

// view returns the objects as of a version: the present ones, or, if exactly that version
// is asked for and is one of this replica, those of that time.
//
// The later pages of a list that another replica began show the present state, under the
// version of the first page. So what has been there all the time is listed, which may be
// newer than the watermark; and a client that watches from there gets all that inputs beyond
// it have changed, so that it misses nothing.
func (s *snapshot[T]) view(r request) (*btree.BTreeG[item[T]], version, error) {
	switch {
	case !r.exact && r.at > s.version:
		return s.objects, r.at.shared(), nil
	case !r.exact:
		return s.objects, s.version, nil
	case s.own(r.at):
		return s.asOf(r.at), r.at, nil
	case r.after != "" && !r.own && s.knowsAfter(r.at):
		return s.objects, r.at, nil
	default:
		return nil, 0, r.expired(s.version)
	}
}
