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
// watch cache has ("0"), and such lists are never in pages.
func inPages(options *metav1.ListOptions) {
	if options.ResourceVersion == "0" {
		options.ResourceVersion = ""
	}
}
