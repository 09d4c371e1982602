// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"

	"github.com/configdep/configdep/pkg/kind"
)

// What is served is read from the aggregated discovery of the API server: one request for all kinds, which any authenticated
// user may make, so that the server needs no right on definitions. While nothing changes, the answer is empty (304).

// maxDiscovery limits the document that lists all resources of a cluster, in bytes: with 2,000 of them it has 1 MB.
const maxDiscovery = 32 << 20

const discoveryKind = "APIGroupDiscoveryList"

// discovery is which resources are served.
type discovery struct {
	tag    string // of the document
	groups map[string][]apidiscoveryv2.APIVersionDiscovery
}

// discover asks which resources of some groups are served. Last is the previous answer, or nil.
func (r *Reader) discover(ctx context.Context, last *discovery, groups []string) (*discovery, error) {
	ctx, cancel := context.WithTimeout(ctx, r.pace.request)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base.JoinPath("apis").String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json;g="+apidiscoveryv2.GroupName+";v=v2;as="+discoveryKind)
	if last != nil && last.tag != "" {
		request.Header.Set("If-None-Match", last.tag)
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusNotModified:
		return last, nil
	case http.StatusOK:
		found, err := readDiscovery(http.MaxBytesReader(nil, answer.Body, maxDiscovery), groups)
		if err != nil {
			return nil, fmt.Errorf("reading the discovery: %w", err)
		}
		found.tag = answer.Header.Get("ETag")
		return found, nil
	default:
		return nil, fmt.Errorf("the API server answered the discovery with %s", answer.Status)
	}
}

// readDiscovery keeps some groups of a document.
func readDiscovery(answer io.Reader, groups []string) (*discovery, error) {
	found, is := &discovery{groups: map[string][]apidiscoveryv2.APIVersionDiscovery{}}, ""
	w := newWindow(answer, 64<<10)
	err := w.eachMember(func(name string) error {
		switch name {
		case "kind":
			return w.decodeJSON(&is)
		case "items":
			return w.eachItem(func() error {
				var g apidiscoveryv2.APIGroupDiscovery
				if err := w.decodeJSON(&g); err != nil {
					return err
				}
				if slices.Contains(groups, g.Name) {
					found.groups[g.Name] = g.Versions
				}
				return nil
			})
		default:
			var other json.RawMessage
			return w.decodeJSON(&other)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case is != discoveryKind:
		return nil, fmt.Errorf("a %s came instead of a %s", is, discoveryKind)
	}
	return found, nil
}

var errUnknownServed = errors.New("the server of the API group is not available")

// service is how a kind is served.
type service struct {
	// version is the first of its versions that is served; empty: none is.
	version string
	// others are versions that are served, but in which it cannot be read, and another says what is served instead.
	others  []string
	another string
}

// served returns how a kind is served. It returns an error if that is not known.
func (d *discovery) served(k *kind.Kind) (out service, err error) {
	var found []string
	for _, v := range d.groups[k.Resource.Group] {
		at := slices.IndexFunc(v.Resources, func(r apidiscoveryv2.APIResourceDiscovery) bool { return r.Resource == k.Resource.Resource })
		if at < 0 {
			if v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				err = errUnknownServed
			}
			continue
		}
		switch r := &v.Resources[at]; {
		case r.Scope == apidiscoveryv2.ScopeCluster && !k.OfCluster:
			out.another = "a resource without namespaces"
		case r.ResponseKind != nil && r.ResponseKind.Kind != "" && r.ResponseKind.Kind != k.GroupVersionKind().Kind:
			out.another = "the kind " + r.ResponseKind.Kind
		default:
			found = append(found, v.Version)
		}
	}
	versions := k.Versions
	if len(versions) == 0 {
		versions = []string{k.Resource.Version}
	}
	for _, v := range versions {
		if slices.Contains(found, v) {
			return service{version: v}, nil
		}
	}
	out.others = found
	return out, err
}
