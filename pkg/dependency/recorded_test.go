// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"maps"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// observed is a version of a Deployment: its image, its annotations, and its status.
type observed struct {
	image       string
	annotations map[string]string
	status      appsv1.DeploymentStatus
	paused      bool
	reloadedAt  string
	stamp       string // the hash in the template
	revision    string
	gone        bool     // the process lost what it knew about the workload
	listed      bool     // not live
	another     bool     // deleted and created again
	written     int      // when the template was last written, in seconds
	by          []string // the field managers of the template, if not the owner
	rekeyed     string   // the hash with another key, which replaces the hash of the annotations
}

// readAll reads a Deployment with three replicas, at versions 10, 20 and so on.
func readAll(versions ...observed) (w *Workload) {
	for i, v := range versions {
		o := &appsv1.Deployment{}
		o.Namespace, o.Name, o.UID, o.ResourceVersion = "shop", "web", "u", string(rune('1'+i))+"0"
		if v.another {
			o.UID = "v"
		}
		o.Annotations = map[string]string{}
		maps.Copy(o.Annotations, v.annotations)
		if v.revision != "" {
			o.Annotations[revisionAnnotation] = v.revision
		}
		o.Spec.Replicas, o.Spec.Paused = new(int32(3)), v.paused
		o.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: v.image}}
		if v.reloadedAt != "" {
			o.Spec.Template.Annotations = map[string]string{reloadedAtAnnotation: v.reloadedAt}
		}
		if v.stamp != "" {
			o.Spec.Template.Annotations = map[string]string{hashAnnotation: v.stamp}
		}
		if v.written != 0 {
			at := metav1.Unix(int64(v.written), 0)
			if v.by == nil {
				v.by = []string{"owner"}
			}
			for _, by := range v.by {
				o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{Manager: by, Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{}}}`)})
			}
		}
		o.Status = v.status
		previous := w
		if v.gone {
			previous = nil
		}
		w = readDeployment(o)
		w.After(previous, Arrival{Live: !v.listed, Order: uint64(i + 1)})
		if v.rekeyed != "" {
			w = w.WithRecord(v.rekeyed, "rekeyed")
		}
	}
	return w
}

// The time at which a record was written is kept until a new record adds information. What another client removes
// from the record is kept as long as the pods are.
func TestWorkload_RecordOfTheSamePods(t *testing.T) {
	type m = map[string]string
	full := m{"config-hash": "h", "applied-sources": "s"}
	verified := m{"config-hash": "h", "applied-sources": "s", "verified-at": "v"}
	restart := m{"config-hash": "h", "applied-sources": "s", "last-reload": "r"}
	evicting := m{"config-hash": "h", "applied-sources": "s", "last-reload": "r", "recreating": "p,q"}
	type record struct {
		Hash, Sources string
		Dropped       bool
		At            Moment
	}
	for name, tt := range map[string]struct {
		do   []observed
		want record
	}{
		"found in the first list":                     {[]observed{{annotations: full, listed: true}}, record{"h", "s", false, Moment{}}},
		"created with a record":                       {[]observed{{annotations: full}}, record{"h", "s", false, Moment{10, 1}}},
		"created again with a record":                 {[]observed{{annotations: full}, {annotations: full, another: true}}, record{"h", "s", false, Moment{20, 2}}},
		"created again with a record, not watched":    {[]observed{{annotations: full}, {annotations: full, another: true, listed: true}}, record{"h", "s", false, Moment{20, 2}}},
		"created again without a record, not watched": {[]observed{{annotations: full}, {another: true, listed: true}}, record{}},
		"written":                                  {[]observed{{}, {annotations: full}}, record{"h", "s", false, Moment{20, 2}}},
		"stays":                                    {[]observed{{}, {annotations: full}, {annotations: full}}, record{"h", "s", false, Moment{20, 2}}},
		"another hash":                             {[]observed{{annotations: full}, {annotations: m{"config-hash": "i", "applied-sources": "s"}}}, record{"i", "s", false, Moment{20, 2}}},
		"other sources":                            {[]observed{{annotations: full}, {annotations: m{"config-hash": "h", "applied-sources": "t"}}}, record{"h", "t", false, Moment{20, 2}}},
		"another hash and other sources":           {[]observed{{annotations: full}, {annotations: m{"config-hash": "i", "applied-sources": "t"}}}, record{"i", "t", false, Moment{20, 2}}},
		"the pods are verified":                    {[]observed{{annotations: full}, {annotations: verified}}, record{"h", "s", false, Moment{20, 2}}},
		"the pods are verified again":              {[]observed{{annotations: verified}, {annotations: m{"config-hash": "h", "applied-sources": "s", "verified-at": "w"}}}, record{"h", "s", false, Moment{20, 2}}},
		"the verification is removed":              {[]observed{{annotations: verified}, {annotations: full}}, record{"h", "s", false, Moment{10, 1}}},
		"a restart is recorded":                    {[]observed{{annotations: full}, {annotations: restart}}, record{"h", "s", false, Moment{20, 2}}},
		"the same restart":                         {[]observed{{annotations: restart}, {annotations: restart}}, record{"h", "s", false, Moment{10, 1}}},
		"another restart":                          {[]observed{{annotations: restart}, {annotations: m{"config-hash": "h", "applied-sources": "s", "last-reload": "q"}}}, record{"h", "s", false, Moment{20, 2}}},
		"the restart is removed":                   {[]observed{{annotations: restart}, {annotations: full}}, record{"h", "s", false, Moment{10, 1}}},
		"an eviction begins with the same restart": {[]observed{{annotations: restart}, {annotations: evicting}}, record{"h", "s", false, Moment{20, 2}}},
		"a pod was evicted":                        {[]observed{{annotations: evicting}, {annotations: m{"config-hash": "h", "applied-sources": "s", "last-reload": "r", "recreating": "q"}}}, record{"h", "s", false, Moment{10, 1}}},
		"all pods were evicted":                    {[]observed{{annotations: evicting}, {annotations: restart}}, record{"h", "s", false, Moment{10, 1}}},
		"removed":                                  {[]observed{{annotations: full}, {}}, record{"h", "s", true, Moment{10, 1}}},
		"removed, and later still absent":          {[]observed{{annotations: full}, {}, {}}, record{"h", "s", true, Moment{10, 1}}},
		"its sources are removed":                  {[]observed{{annotations: full}, {annotations: m{"config-hash": "h"}}}, record{"h", "s", true, Moment{10, 1}}},
		"its hash is removed":                      {[]observed{{annotations: full}, {annotations: m{"applied-sources": "s"}}}, record{"h", "s", true, Moment{10, 1}}},
		"a record without sources":                 {[]observed{{annotations: m{"config-hash": "h"}}, {annotations: m{"config-hash": "h"}}}, record{"h", "", false, Moment{10, 1}}},
		"another hash, without sources":            {[]observed{{annotations: full}, {annotations: m{"config-hash": "i"}}}, record{"i", "", false, Moment{20, 2}}},
		"another hash with the same sources":       {[]observed{{annotations: full}, {annotations: m{"config-hash": "i", "applied-sources": "s"}}}, record{"i", "s", false, Moment{20, 2}}},
		"removed, and the template changes":        {[]observed{{annotations: full}, {image: "2"}}, record{}},
		"rekeyed":                                  {[]observed{{annotations: full, rekeyed: "v1.b.k"}, {annotations: full}}, record{"v1.b.k", "rekeyed", false, Moment{10, 1}}},
		"rekeyed, and written":                     {[]observed{{annotations: full, rekeyed: "v1.b.k"}, {annotations: m{"config-hash": "v1.b.k", "applied-sources": "rekeyed"}}}, record{"v1.b.k", "rekeyed", false, Moment{20, 2}}},
		"rekeyed, and removed":                     {[]observed{{annotations: full, rekeyed: "v1.b.k"}, {}}, record{"v1.b.k", "rekeyed", true, Moment{10, 1}}},
		"removed, and then rekeyed":                {[]observed{{annotations: full}, {rekeyed: "v1.b.k"}, {}}, record{"v1.b.k", "rekeyed", true, Moment{10, 1}}},
		"removed, and written again":               {[]observed{{annotations: full}, {}, {annotations: full}}, record{"h", "s", false, Moment{10, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := readAll(tt.do...)
			hash, sources := w.Record()
			if diff := cmp.Diff(tt.want, record{hash, sources, w.RecordDropped(), w.RecordedAt}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// All templates are known of a workload that was created while watched.
func TestWorkload_StartOfANewOne(t *testing.T) {
	for name, tt := range map[string]struct {
		do   []observed
		want bool
	}{
		"another template":                {[]observed{{image: "1"}, {image: "2"}}, false},
		"a third one":                     {[]observed{{image: "1"}, {image: "2"}, {image: "3"}}, false},
		"back to the first template":      {[]observed{{image: "1"}, {image: "2"}, {image: "1"}}, true},
		"a list in between":               {[]observed{{image: "1"}, {image: "1", listed: true}, {image: "2"}}, true},
		"created again, seen":             {[]observed{{image: "1", listed: true}, {image: "1", another: true}, {image: "2", another: true}}, false},
		"created again, not watched":      {[]observed{{image: "1"}, {image: "1", another: true, listed: true}, {image: "2", another: true}}, true},
		"deleted and created again, seen": {[]observed{{image: "1"}, {image: "1", another: true, gone: true}, {image: "2", another: true}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if w := readAll(tt.do...); w.StartUnsure != tt.want {
				t.Errorf("unsure %v, want %v", w.StartUnsure, tt.want)
			}
		})
	}
}

// A template that is set in the middle of a rollout may be an earlier one whose pods were never replaced, unless
// configdep created the template: then it has a time that no other template has.
func TestWorkload_StartIsUnsure(t *testing.T) {
	const noon, later, atNoon = "2026-01-01T12:00:00Z", "2026-01-01T12:00:00.5Z", 1767268800
	recordOf := func(hash, at string) map[string]string {
		return map[string]string{"config-hash": hash, "last-reload": `{"time":"` + at + `"}`}
	}
	us := []string{OwnFieldManager}
	recreated := observed{image: "1", stamp: "h", annotations: recordOf("i", later)}
	done := appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3}
	for name, tt := range map[string]struct {
		do     []observed // the first version is in the first list
		want   bool
		before string // RevisionBefore
	}{
		"first seen":                                       {[]observed{{image: "1", revision: "1"}}, false, ""},
		"a rollout after another":                          {[]observed{{image: "1", revision: "1", status: done}, {image: "2", revision: "1"}}, false, "1"},
		"in the middle of a rollout":                       {[]observed{{image: "1", revision: "1"}, {image: "2", revision: "1"}}, true, "1"},
		"a third template since a complete rollout":        {[]observed{{image: "1", status: done}, {image: "2"}, {image: "3"}}, false, ""},
		"back to the template of the complete rollout":     {[]observed{{image: "1", status: done}, {image: "2"}, {image: "1"}}, true, ""},
		"back to another template":                         {[]observed{{image: "1", status: done}, {image: "2"}, {image: "3"}, {image: "2"}}, true, ""},
		"back to a template before the complete rollout":   {[]observed{{image: "0"}, {image: "1", status: done}, {image: "2"}, {image: "0"}}, false, ""},
		"back to a template whose pods are being replaced": {[]observed{{image: "1", status: done}, {image: "1"}, {image: "2"}, {image: "1"}}, true, ""},
		"other templates while pods are being replaced":    {[]observed{{image: "1", status: done}, {image: "1"}, {image: "1"}, {image: "2"}, {image: "3"}}, false, ""},
		"a list may hide a template":                       {[]observed{{image: "1", status: done}, {image: "2"}, {image: "2", listed: true}, {image: "3"}}, true, ""},
		"a list after a complete rollout":                  {[]observed{{image: "1", status: done}, {image: "2", listed: true}}, false, ""},
		"after a list that may hide a template":            {[]observed{{image: "1", status: done}, {image: "2", listed: true}, {image: "3"}}, true, ""},
		"after a list with a complete rollout":             {[]observed{{image: "1"}, {image: "2", listed: true, status: done}, {image: "3"}, {image: "4"}}, false, ""},
		"as many templates as are remembered": {[]observed{
			{image: "1", status: done}, {image: "2"}, {image: "3"}, {image: "4"}, {image: "5"}, {image: "6"},
			{image: "7"}, {image: "8"}, {image: "9"},
		}, false, ""},
		"more templates than are remembered": {[]observed{{image: "1", status: done}, {image: "2"}, {image: "3"}, {image: "4"}, {image: "5"}, {image: "6"},
			{image: "7"}, {image: "8"}, {image: "9"}, {image: "10"}}, true, ""},
		"the rollout completes":                                               {[]observed{{image: "1", revision: "1"}, {image: "2", revision: "1"}, {image: "2", revision: "2", status: done}}, true, "1"},
		"restarted by configdep":                                              {[]observed{{image: "1"}, {image: "1", reloadedAt: noon}}, false, ""},
		"another template with the time of the previous one":                  {[]observed{{image: "1", reloadedAt: noon}, {image: "2", reloadedAt: noon}}, true, ""},
		"restarted again by configdep":                                        {[]observed{{image: "1", reloadedAt: noon}, {image: "1", reloadedAt: later}}, false, ""},
		"an earlier restart time":                                             {[]observed{{image: "1", reloadedAt: later}, {image: "1", reloadedAt: noon}}, true, ""},
		"an earlier restart time than the one before last":                    {[]observed{{image: "1", reloadedAt: later}, {image: "2"}, {image: "1", reloadedAt: noon}}, true, ""},
		"an invalid restart time":                                             {[]observed{{image: "1"}, {image: "1", reloadedAt: "now"}}, true, ""},
		"a restart whose time is only in the record":                          {[]observed{{image: "1"}, {image: "1", stamp: "h", annotations: recordOf("h", noon)}}, false, ""},
		"long enough after the previous write":                                {[]observed{{image: "1", written: atNoon - 121}, {image: "1", reloadedAt: noon}}, false, ""},
		"too soon after the previous write":                                   {[]observed{{image: "1", written: atNoon - 120}, {image: "1", reloadedAt: noon}}, true, ""},
		"managed fields show that configdep wrote":                            {[]observed{{image: "1", written: atNoon}, {image: "1", reloadedAt: noon, written: atNoon, by: us}}, false, ""},
		"managed fields show that the owner wrote as well":                    {[]observed{{image: "1", written: atNoon}, {image: "1", reloadedAt: noon, written: atNoon, by: []string{OwnFieldManager, "owner"}}}, true, ""},
		"managed fields show that the owner wrote first":                      {[]observed{{image: "1", written: atNoon}, {image: "1", reloadedAt: noon, written: atNoon, by: []string{"owner", OwnFieldManager}}}, true, ""},
		"managed fields in a list show that configdep wrote":                  {[]observed{{image: "1", written: atNoon}, {image: "1", reloadedAt: noon, written: atNoon, by: us, listed: true}}, false, ""},
		"written by configdep, without a time":                                {[]observed{{image: "1", written: atNoon}, {image: "1", stamp: "h", written: atNoon, by: us}}, false, ""},
		"another template of configdep with the same hash and without a time": {[]observed{{image: "1", stamp: "h", written: atNoon, by: us}, {image: "2", stamp: "h", written: atNoon, by: us}}, true, ""},
		"another template of configdep with the same time":                    {[]observed{{image: "1", reloadedAt: noon, written: atNoon, by: us}, {image: "2", reloadedAt: noon, written: atNoon, by: us}}, true, ""},
		"soon after a restart by configdep":                                   {[]observed{{image: "1", written: atNoon - 1, reloadedAt: noon}, {image: "1", reloadedAt: later}}, false, ""},
		"changed by the owner after a restart by configdep":                   {[]observed{{image: "1"}, {image: "1", stamp: "h", annotations: recordOf("h", noon)}, {image: "2", stamp: "h", annotations: recordOf("h", noon)}}, true, ""},
		"a record with an earlier restart time":                               {[]observed{{image: "1", stamp: "h", annotations: recordOf("h", later)}, {image: "1", stamp: "g", annotations: recordOf("g", noon)}}, true, ""},
		"the record is from an eviction":                                      {[]observed{{image: "1"}, {image: "2", stamp: "h", annotations: recordOf("i", noon)}}, true, ""},
		"the previous record is from an eviction":                             {[]observed{recreated, {image: "2", stamp: "i", annotations: recordOf("i", later)}}, true, ""},
		"the record has an invalid time":                                      {[]observed{{image: "1"}, {image: "1", stamp: "h", annotations: recordOf("h", "now")}}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tt.do[0].listed = true
			w := readAll(tt.do...)
			if w.StartUnsure != tt.want || w.RevisionBefore != tt.before {
				t.Errorf("StartUnsure = %v, RevisionBefore = %q; want %v, %q", w.StartUnsure, w.RevisionBefore, tt.want, tt.before)
			}
		})
	}
}

// Pods of an earlier template of other kinds may still exist, even without a rollout in progress.
func TestWorkload_Restarted(t *testing.T) {
	before := &Workload{}
	for countsAll, want := range map[bool][2]bool{true: {true, true}, false: {false, true}} {
		for i, marks := range []Marks{{TemplateHash: "v"}, {ReloadedAt: "v"}} {
			w := &Workload{Traits: Traits{CountsAll: countsAll}, Marks: marks, writtenByUs: true}
			if got := w.restarted(before); got != want[i] {
				t.Errorf("CountsAll = %v, annotations %+v: restarted = %v", countsAll, marks, got)
			}
			if w.writtenByUs = false; w.restarted(before) {
				t.Errorf("CountsAll = %v, annotations %+v by another client: restarted = true, want false", countsAll, marks)
			}
		}
	}
}

// The latest time at which all pods were of another template than the current one.
func TestWorkload_PodsAfter(t *testing.T) {
	done := appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3}
	for name, tt := range map[string]struct {
		do   []observed
		want Moment
	}{
		"no complete rollout":                              {[]observed{{image: "1"}, {image: "2"}}, Moment{}},
		"a rollout after another":                          {[]observed{{image: "1", status: done}, {image: "2"}}, Moment{10, 1}},
		"a complete rollout, seen twice":                   {[]observed{{image: "1", status: done}, {image: "1", status: done}, {image: "2"}}, Moment{20, 2}},
		"the rollout continues":                            {[]observed{{image: "1", status: done}, {image: "2"}, {image: "2"}}, Moment{10, 1}},
		"the rollout completes":                            {[]observed{{image: "1", status: done}, {image: "2"}, {image: "2", status: done}}, Moment{10, 1}},
		"a third template":                                 {[]observed{{image: "1", status: done}, {image: "2"}, {image: "3"}}, Moment{10, 1}},
		"a list may hide a template":                       {[]observed{{image: "1", status: done}, {image: "2", listed: true}, {image: "3"}}, Moment{10, 1}},
		"back to the template of the complete rollout":     {[]observed{{image: "1", status: done}, {image: "2"}, {image: "1"}}, Moment{}},
		"back to an earlier template":                      {[]observed{{image: "0"}, {image: "1", status: done}, {image: "2"}, {image: "0"}}, Moment{20, 2}},
		"pods of the previous template are being replaced": {[]observed{{image: "1", status: done}, {image: "1"}, {image: "2"}}, Moment{10, 1}},
		"deleted and created again":                        {[]observed{{image: "1", status: done}, {image: "2", another: true}, {image: "3", another: true}}, Moment{}},
		"the process lost what it knew":                    {[]observed{{image: "1", status: done}, {image: "2", gone: true}, {image: "3"}}, Moment{}},
	} {
		t.Run(name, func(t *testing.T) {
			if w := readAll(tt.do...); w.PodsAfter != tt.want {
				t.Errorf("got %v, want %v", w.PodsAfter, tt.want)
			}
		})
	}
}

// A list that shows a later write of the same template may hide that another template was set in between, unless
// the revision shows that none was.
func TestWorkload_StartedBy(t *testing.T) {
	for name, tt := range map[string]struct {
		do   []observed
		want uint64
	}{
		"watched":                                {[]observed{{image: "1", written: 1}, {image: "1", written: 2}}, 10},
		"listed unchanged":                       {[]observed{{image: "1", written: 1}, {image: "1", written: 1, listed: true}}, 10},
		"listed after another write":             {[]observed{{image: "1", written: 1}, {image: "1", written: 2, listed: true}}, 20},
		"listed with the same revision":          {[]observed{{image: "1", written: 1, revision: "3"}, {image: "1", written: 2, revision: "3", listed: true}}, 10},
		"listed with another revision":           {[]observed{{image: "1", written: 1, revision: "3"}, {image: "1", written: 2, revision: "4", listed: true}}, 20},
		"listed without its revision":            {[]observed{{image: "1", written: 1, revision: "3"}, {image: "1", written: 2, listed: true}}, 20},
		"listed with its first revision":         {[]observed{{image: "1", written: 1}, {image: "1", written: 2, revision: "1", listed: true}}, 10},
		"listed with a revision after the first": {[]observed{{image: "1", written: 1}, {image: "1", written: 2, revision: "2", listed: true}}, 20},
		"listed with another template":           {[]observed{{image: "1", written: 1, revision: "3"}, {image: "2", written: 1, revision: "3", listed: true}}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			if w := readAll(tt.do...); w.StartedBy != tt.want {
				t.Errorf("got %d, want %d", w.StartedBy, tt.want)
			}
		})
	}
}

// A rollout of the current template has a higher revision than the last one before it.
func TestWorkload_RevisionIsNew(t *testing.T) {
	for name, tt := range map[string]struct {
		do   []observed
		want bool
	}{
		"the revision has increased":                      {[]observed{{image: "1", revision: "1"}, {image: "2", revision: "1"}, {image: "2", revision: "2"}}, true},
		"the revision has not increased yet":              {[]observed{{image: "1", revision: "1"}, {image: "2", revision: "1"}}, false},
		"back to an earlier template":                     {[]observed{{image: "1", revision: "1"}, {image: "2", revision: "2"}, {image: "1", revision: "2"}, {image: "1", revision: "1"}}, false},
		"revision 10 after revision 9":                    {[]observed{{image: "1", revision: "9"}, {image: "2", revision: "9"}, {image: "2", revision: "10"}}, true},
		"no previous revision":                            {[]observed{{image: "1"}, {image: "2"}, {image: "2", revision: "1"}}, false},
		"a revision that is not a number":                 {[]observed{{image: "1", revision: "1"}, {image: "2", revision: "1"}, {image: "2", revision: "x"}}, false},
		"seen for the first time":                         {[]observed{{image: "1", revision: "1"}}, false},
		"the revision of an unchanged template increases": {[]observed{{image: "1", revision: "1"}, {image: "1", revision: "2"}}, false},
		"a list shows a higher revision":                  {[]observed{{image: "1", revision: "1"}, {image: "2", revision: "2", listed: true}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if w := readAll(tt.do...); w.RevisionIsNew() != tt.want {
				t.Errorf("got %v, want %v", w.RevisionIsNew(), tt.want)
			}
		})
	}
}

// The pods of a paused Deployment are those of the template with which it was paused. If that was not seen, the
// status shows whether they are.
func TestWorkload_TemplateOfAPausedDeployment(t *testing.T) {
	all := appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3}
	none := appsv1.DeploymentStatus{Replicas: 3}
	some := appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 1}
	for name, tt := range map[string]struct {
		do      []observed
		pending bool
	}{
		"not paused":                            {[]observed{{image: "1"}, {image: "2"}}, false},
		"paused":                                {[]observed{{image: "1"}, {image: "1", paused: true}}, false},
		"changed while paused":                  {[]observed{{image: "1"}, {image: "2", paused: true, status: all}}, true},
		"changed and changed back while paused": {[]observed{{image: "1"}, {image: "2", paused: true}, {image: "1", paused: true}}, false},
		"resumed":                               {[]observed{{image: "1"}, {image: "2", paused: true}, {image: "2"}}, false},
		"created paused, seen":                  {[]observed{{image: "1", paused: true}}, true},
		"found paused, all pods are of the template":                                       {[]observed{{image: "1", paused: true, listed: true, status: all}}, false},
		"found paused, no pod is of the template":                                          {[]observed{{image: "1", paused: true, listed: true, status: none}}, true},
		"found paused, some pods are of the template":                                      {[]observed{{image: "1", paused: true, listed: true, status: some}}, false},
		"found paused with some pods of the template, later none":                          {[]observed{{image: "1", paused: true, listed: true, status: some}, {image: "1", paused: true, status: none}}, true},
		"found paused with all pods of the template, later none":                           {[]observed{{image: "1", paused: true, listed: true, status: all}, {image: "1", paused: true, status: none}}, false},
		"found paused with some pods of the template, later some":                          {[]observed{{image: "1", paused: true, listed: true, status: some}, {image: "1", paused: true, status: some}}, false},
		"found paused with some pods of the template, then changed":                        {[]observed{{image: "1", paused: true, listed: true, status: some}, {image: "2", paused: true, status: some}}, true},
		"found paused with some pods of the template, changed and changed back":            {[]observed{{image: "1", paused: true, listed: true, status: some}, {image: "2", paused: true, status: none}, {image: "1", paused: true, status: some}}, false},
		"found paused with some pods of the template, changed and changed back, then none": {[]observed{{image: "1", paused: true, listed: true, status: some}, {image: "2", paused: true, status: none}, {image: "1", paused: true, status: none}}, true},
		"listed as paused, with another template, all pods are of it":                      {[]observed{{image: "1"}, {image: "2", paused: true, listed: true, status: all}}, false},
		"listed as paused, with another template, some pods are of it":                     {[]observed{{image: "1"}, {image: "2", paused: true, listed: true, status: some}}, false},
		"listed as paused, with another template, no pod is of it":                         {[]observed{{image: "1"}, {image: "2", paused: true, listed: true, status: none}}, true},
		"listed as paused, with the same template, no pod is of it":                        {[]observed{{image: "1"}, {image: "1", paused: true, listed: true, status: none}}, true},
		"listed as still paused":                                                           {[]observed{{image: "1"}, {image: "2", paused: true}, {image: "2", paused: true, listed: true, status: none}}, true},
		"resumed, then paused again":                                                       {[]observed{{image: "1"}, {image: "2", paused: true}, {image: "2", paused: true, listed: true, status: some}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := readAll(tt.do...).TemplatePending; got != tt.pending {
				t.Errorf("TemplatePending = %v, want %v", got, tt.pending)
			}
		})
	}
}

// The times are kept at which a workload opted in and at which its scope changed; for the scope, the first change
// since the last record.
func TestWorkload_Opt(t *testing.T) {
	type step struct {
		in       bool
		scope    string
		recorded uint64
	}
	for name, tt := range map[string]struct {
		do            []step // at versions 10, 20 and so on
		opted, scoped Moment
	}{
		"seen for the first time":                 {[]step{{true, "a", 0}}, Moment{}, Moment{}},
		"nothing changes":                         {[]step{{true, "a", 0}, {true, "a", 0}}, Moment{}, Moment{}},
		"opts in":                                 {[]step{{false, "a", 0}, {true, "a", 0}}, Moment{20, 2}, Moment{}},
		"stays opted in":                          {[]step{{false, "a", 0}, {true, "a", 0}, {true, "a", 0}}, Moment{20, 2}, Moment{}},
		"another scope":                           {[]step{{true, "a", 0}, {true, "b", 0}}, Moment{}, Moment{20, 2}},
		"another scope, then unchanged":           {[]step{{true, "a", 0}, {true, "b", 0}, {true, "b", 0}}, Moment{}, Moment{20, 2}},
		"another scope, then a third":             {[]step{{true, "a", 0}, {true, "b", 0}, {true, "c", 0}}, Moment{}, Moment{20, 2}},
		"a record is written after another scope": {[]step{{true, "a", 0}, {true, "b", 0}, {true, "b", 30}}, Moment{}, Moment{20, 2}},
		"a record is written with a third scope":  {[]step{{true, "a", 0}, {true, "b", 0}, {true, "c", 30}}, Moment{}, Moment{30, 3}},
		"a third scope after a record":            {[]step{{true, "a", 0}, {true, "b", 0}, {true, "b", 30}, {true, "c", 30}}, Moment{}, Moment{40, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			var last *Workload
			for i, s := range tt.do {
				w := &Workload{RecordedAt: Moment{s.recorded, s.recorded / 10}}
				w.Opt(Opting{In: s.in, Scope: ShareText(s.scope)}, last, string(rune('1'+i))+"0", Arrival{Order: uint64(i + 1)})
				last = w
			}
			if last.OptedAt != tt.opted || last.ScopedAt != tt.scoped {
				t.Errorf("OptedAt = %v, ScopedAt = %v; want %v, %v", last.OptedAt, last.ScopedAt, tt.opted, tt.scoped)
			}
		})
	}
}

// A complete rollout says nothing about pods that it does not count: pods of a DaemonSet on nodes that should have
// none, and pods of a StatefulSet that is scaled down. A later template may be the one of such a pod.
func TestWorkload_CompleteBesideOtherPods(t *testing.T) {
	for name, tt := range map[string]struct {
		surplus, unsure bool
	}{
		"all pods are counted":                                 {false, false},
		"a node is tainted, or the StatefulSet is scaled down": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			var w *Workload
			for i, image := range []string{"1", "2", "1"} {
				previous := w
				w = NewWorkload(&Object{
					Kind: DaemonSet, Traits: Traits{Rollable: true},
					Meta:     &metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: strconv.Itoa(10 * (i + 1))},
					Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: image}}}},
					Status:   Status{Rollout: Rollout{Phase: RolloutComplete}, Replicas: 1, Surplus: tt.surplus},
				}, Annotations{})
				w.After(previous, Arrival{Live: true, Order: uint64(i + 1)})
			}
			after := Moment{20, 2}
			if tt.unsure {
				after = Moment{}
			}
			if w.Rollout.Phase != RolloutComplete || w.StartUnsure != tt.unsure || w.PodsAfter != after {
				t.Errorf("phase %s, StartUnsure = %v, PodsAfter = %v", w.Rollout.Phase, w.StartUnsure, w.PodsAfter)
			}
		})
	}
}
