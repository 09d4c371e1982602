package ingest

import (
	"context"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/configdep/configdep/pkg/dependency"
)

// Run reads the cluster into the index until the context is done.
func (x *Index) Run(ctx context.Context, client kubernetes.Interface, digester *dependency.Digester) {
	var wg sync.WaitGroup
	for _, s := range streams(client, digester) {
		r := cache.NewReflectorWithOptions(s.lister, nil, &store{x, s}, cache.ReflectorOptions{
			Name:            "configdep",
			TypeDescription: s.name,
		})
		wg.Go(func() { r.RunWithContext(ctx) })
	}
	wg.Wait()
}

// store passes what a reflector reads to the index. Its methods return no errors: the
// reflector would log the object with them.
type store struct {
	index  *Index
	stream *stream
}

var (
	_ cache.ReflectorStore         = &store{}
	_ cache.ReflectorBookmarkStore = &store{}
)

func (s *store) Add(o any) error    { s.index.set(o.(*object)); return nil }
func (s *store) Update(o any) error { s.index.set(o.(*object)); return nil }
func (s *store) Delete(o any) error { s.index.remove(s.stream, o.(*object)); return nil }

func (s *store) Replace(objects []any, version string) error {
	s.index.replace(s.stream, objects, version)
	return nil
}

func (s *store) Bookmark(version string) error { s.index.progress(version); return nil }
func (s *store) Resync() error                 { return nil }
