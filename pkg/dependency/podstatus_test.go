// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// driver writes statuses of the class keys in the namespace shop, as the Secrets Store CSI driver does.
type driver struct {
	graph   *Graph
	version int64 // of the last write
	pods    map[string]*metav1.ObjectMeta
	mounts  map[string]string // the version of the object that each pod has
}

func newDriver() *driver {
	d := &driver{NewGraph(), 100, map[string]*metav1.ObjectMeta{}, map[string]string{}}
	d.graph.SetDigester(testDigester())
	return d
}

var keys = SourceKey{SecretProviderClass, "shop", "keys"}

// at is the time of the last write: one is made each minute.
func (d *driver) at() time.Time { return day.Add(time.Duration(d.version) * time.Minute) }

func (d *driver) arrival() Arrival {
	return Arrival{Live: true, Order: uint64(d.version), Seen: d.at()}
}

// write mounts the class in a pod, or updates what it has mounted.
func (d *driver) write(pod, version string) {
	d.version++
	m := d.pods[pod]
	now := metav1.NewTime(d.at())
	switch {
	case m == nil:
		m = &metav1.ObjectMeta{Namespace: "shop", Name: pod, Generation: 1, CreationTimestamp: now}
		d.pods[pod] = m
	case d.mounts[pod] != version:
		m.Generation++
		m.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &now, FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:objects":{}}}`)}}
	}
	m.ResourceVersion = strconv.FormatInt(d.version, 10)
	d.mounts[pod] = version
	d.graph.SetPodStatus(d.status(pod), d.arrival())
}

func (d *driver) status(pod string) *PodStatus {
	return FromPodStatus(testDigester(), d.pods[pod], "keys", []PodObject{{"password", d.mounts[pod]}, {"user", "admin"}})
}

func (d *driver) remove(pod string) {
	d.version++
	delete(d.pods, pod)
	delete(d.mounts, pod)
	d.graph.DeletePodStatus("shop", pod, d.arrival())
}

// classContent returns the version that is the content of the class, and whether pods are known to need a restart to read it.
func classContent(g *Graph) string {
	s := g.Source(keys)
	if s == nil {
		return "none"
	}
	for version := range 100 {
		if s.Keys[0].Digest == testDigester().digest([]byte(strconv.Itoa(version))) {
			return fmt.Sprintf("%d, unproven %t", version, s.Unproven())
		}
	}
	return "unknown"
}

func TestGraph_ContentOfClasses(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(*driver)
		want string
		// changed is the version of the last write that was a change; 0: it is that with which the class was first read.
		changed int64
	}{
		"mounted":           {func(d *driver) { d.write("a", "1"); d.write("b", "1") }, "1, unproven true", 0},
		"mounted, and gone": {func(d *driver) { d.write("a", "1"); d.remove("a") }, "none", 0},
		"of two mounts the first counts": {
			func(d *driver) { d.write("a", "1"); d.write("b", "2") }, "1, unproven true", 0,
		},
		"the first mount goes": {func(d *driver) { d.write("a", "1"); d.write("b", "2"); d.remove("a") }, "2, unproven true", 0},
		"updated":              {func(d *driver) { d.write("a", "1"); d.write("a", "2") }, "2, unproven false", 102},
		"updated twice":        {func(d *driver) { d.write("a", "1"); d.write("a", "2"); d.write("a", "3") }, "3, unproven false", 103},
		"the first report counts": {
			func(d *driver) { d.write("a", "1"); d.write("b", "1"); d.write("a", "2"); d.write("b", "2") }, "2, unproven false", 103,
		},
		"mounted after the update": {func(d *driver) { d.write("a", "1"); d.write("a", "2"); d.write("b", "2") }, "2, unproven false", 102},
		"what was updated goes":    {func(d *driver) { d.write("a", "1"); d.write("a", "2"); d.write("b", "2"); d.remove("a") }, "2, unproven true", 102},
		"an older update is left": {
			func(d *driver) {
				d.write("a", "1")
				d.write("b", "1")
				d.write("a", "2")
				d.write("b", "3")
				d.remove("b")
			}, "2, unproven true", 104,
		},
		"back":          {func(d *driver) { d.write("a", "1"); d.write("a", "2"); d.write("a", "1") }, "1, unproven false", 103},
		"only metadata": {func(d *driver) { d.write("a", "1"); d.write("a", "2"); d.write("a", "2") }, "2, unproven false", 102},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver()
			tt.do(d)
			if got := classContent(d.graph); got != tt.want {
				t.Errorf("content = %s, want %s", got, tt.want)
			}
			s := d.graph.Source(keys)
			if s == nil {
				return
			}
			changed := int64(0)
			if !s.Change.Seen.IsZero() {
				changed = int64(s.Change.Version)
				if !s.Change.Exact || s.Keys[0].Version != s.Change.Version || s.Keys[1].Version == s.Change.Version {
					t.Errorf("change = %+v, keys = %+v", s.Change, s.Keys)
				}
			}
			if changed != tt.changed {
				t.Errorf("changed at %d, want %d", changed, tt.changed)
			}
			if last := s.LastChanged.Time; tt.changed != 0 && !s.Unproven() && !last.Equal(day.Add(time.Duration(tt.changed)*time.Minute)) {
				t.Errorf("last changed %v", last)
			}
		})
	}
}

// Replicas that have read the statuses in another order, or have just begun, know the same content.
func TestGraph_ContentOfClassesIsThatOfTheStatuses(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		d := newDriver()
		for range 40 {
			pod := strconv.Itoa(random.IntN(8))
			if random.IntN(4) == 0 && d.pods[pod] != nil {
				d.remove(pod)
			} else {
				d.write(pod, strconv.Itoa(random.IntN(4)))
			}
			fresh := NewGraph()
			fresh.SetDigester(testDigester())
			for pod := range d.pods {
				fresh.SetPodStatus(d.status(pod), Arrival{Order: 1})
			}
			s, want := d.graph.Source(keys), fresh.Source(keys)
			if s == nil || want == nil {
				if s != want {
					t.Fatalf("seed %d: one of %+v and %+v is missing", seed, s, want)
				}
				continue
			}
			if s.content != want.content || !s.LastChanged.Equal(&want.LastChanged) || s.ResourceVersion != want.ResourceVersion {
				t.Fatalf("seed %d: %s at %v of version %s, and for a new graph %s at %v of version %s", seed, classContent(d.graph), s.LastChanged, s.ResourceVersion,
					classContent(fresh), want.LastChanged, want.ResourceVersion)
			}
		}
	}
}

// What a report costs does not grow with the number of pods, and what is kept of most of them is small.
func BenchmarkGraph_SetPodStatus(b *testing.B) {
	for _, pods := range []int{100, 10_000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			d := newDriver()
			for i := range pods {
				d.write("pod-"+strconv.Itoa(i), "1")
			}
			for i := 0; b.Loop(); i++ {
				d.write("pod-"+strconv.Itoa(i%pods), strconv.Itoa(2+i/pods))
			}
		})
	}
}
