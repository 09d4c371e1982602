package dependency

import (
	"hash/maphash"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FieldManager stands for the name of a field manager in this process. The name itself is not
// kept, because clients may write anything into it. Zero: none.
type FieldManager uint64

// maxManagers bounds what is kept of one object. The API server keeps 10 managers that update,
// and any number of those that apply.
const maxManagers = 16

func managerOf(entry *metav1.ManagedFieldsEntry) FieldManager {
	return FieldManager(maphash.String(seed, entry.Manager) | 1)
}

// maxWriters bounds of how many field managers and namespaces it is remembered when they last
// wrote.
const maxWriters = 10_000

type writer struct {
	namespace string
	manager   FieldManager
}

// LastWriteBy returns when this process last saw a field manager change the content of a source
// or a pod template in a namespace, zero if that is not known.
func (g *Graph) LastWriteBy(namespace string, manager FieldManager) time.Time {
	at, _ := g.writers.Get(writer{namespace, manager})
	seen, _ := at.(time.Time)
	return seen
}

func (g *Graph) noteWrite(namespace string, manager FieldManager, seen time.Time) {
	if manager != 0 && seen.After(g.LastWriteBy(namespace, manager)) {
		g.writers.Add(writer{namespace, manager}, seen)
	}
}
