package ingest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// pageSize is how many objects are listed at once. A page of the largest ConfigMaps is
// what a start needs in memory besides the index.
const pageSize = 100

// paged makes a reflector list in pages and then watch. The alternative, a watch that
// begins with all objects, costs the API server twice as much, and us too: each object
// comes in an envelope of its own.
type paged struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is how client-go asks.
func (paged) IsWatchListSemanticsUnSupported() bool { return true }

// inPages asks for a list of the present. The reflector begins with any version that the
// watch cache has ("0"), and such lists are never in pages. Later it asks for one that is
// not older than what it has seen, and in pages that means this very version: the watch
// cache of an API server that has been restarted begins after it, so that the list would
// succeed and the watch be refused, again and again, until etcd is compacted.
func inPages(options *metav1.ListOptions) { options.ResourceVersion = "" }
