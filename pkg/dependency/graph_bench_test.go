package dependency

import (
	"fmt"
	"testing"
)

// BenchmarkDeleteSource measures the deletion of sources that a glob names, one after the other,
// beside sources that templates name and that are gone as well.
func BenchmarkDeleteSource(b *testing.B) {
	for _, named := range []int{0, 12_000} {
		b.Run(fmt.Sprint(named, " that templates name are gone"), func(b *testing.B) {
			g := NewGraph()
			g.SetWorkload(&Workload{WorkloadKey: WorkloadKey{Deployment, "shop", "globs"}}, []Pattern{{ConfigMap, "*"}})
			remove := func(kind SourceKind, name string, version int) {
				key := SourceKey{kind, "shop", name}
				g.SetSource(&Source{SourceKey: key})
				g.DeleteSource(key, Change{Version: uint64(version)})
			}
			for i := range named {
				name := fmt.Sprint("s-", i)
				g.SetWorkload(&Workload{
					WorkloadKey: WorkloadKey{Deployment, "shop", name}, References: []Reference{{Kind: Secret, Name: name}},
				}, nil)
				remove(Secret, name, 1)
			}
			for i := 0; b.Loop(); i++ {
				remove(ConfigMap, fmt.Sprint("lock-", i), 2+i)
			}
		})
	}
}
