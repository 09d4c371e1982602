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

// observed is a Deployment as it is read: its image, its annotations, and what its status says.
type observed struct {
	image       string
	annotations map[string]string
	status      appsv1.DeploymentStatus
	paused      bool
	reloadedAt  string
	stamp       string // the hash in the template
	revision    string
	gone        bool     // the process has forgotten what it knew
	listed      bool     // not live
	another     bool     // created in the place of the one before
	written     int      // when the template was last written, in seconds
	by          []string // by whom, if not by the owner
	rekeyed     string   // what the hash is with another key, which has replaced that of the annotations
}

// readAll reads versions 10, 20 and so on of a Deployment with three replicas.
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

// When a record was written is remembered until it tells more; what another client removes of it
// stays, as long as the pods do.
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
		"created with it":                             {[]observed{{annotations: full}}, record{"h", "s", false, Moment{10, 1}}},
		"created again with it":                       {[]observed{{annotations: full}, {annotations: full, another: true}}, record{"h", "s", false, Moment{20, 2}}},
		"the same, while no replica looked":           {[]observed{{annotations: full}, {annotations: full, another: true, listed: true}}, record{"h", "s", false, Moment{20, 2}}},
		"created without it, while no replica looked": {[]observed{{annotations: full}, {another: true, listed: true}}, record{}},
		"written":                                {[]observed{{}, {annotations: full}}, record{"h", "s", false, Moment{20, 2}}},
		"it stays":                               {[]observed{{}, {annotations: full}, {annotations: full}}, record{"h", "s", false, Moment{20, 2}}},
		"another hash":                           {[]observed{{annotations: full}, {annotations: m{"config-hash": "i", "applied-sources": "s"}}}, record{"i", "s", false, Moment{20, 2}}},
		"other sources":                          {[]observed{{annotations: full}, {annotations: m{"config-hash": "h", "applied-sources": "t"}}}, record{"h", "t", false, Moment{20, 2}}},
		"both":                                   {[]observed{{annotations: full}, {annotations: m{"config-hash": "i", "applied-sources": "t"}}}, record{"i", "t", false, Moment{20, 2}}},
		"the pods were looked up":                {[]observed{{annotations: full}, {annotations: verified}}, record{"h", "s", false, Moment{20, 2}}},
		"once more":                              {[]observed{{annotations: verified}, {annotations: m{"config-hash": "h", "applied-sources": "s", "verified-at": "w"}}}, record{"h", "s", false, Moment{20, 2}}},
		"that they were is removed":              {[]observed{{annotations: verified}, {annotations: full}}, record{"h", "s", false, Moment{10, 1}}},
		"of a restart":                           {[]observed{{annotations: full}, {annotations: restart}}, record{"h", "s", false, Moment{20, 2}}},
		"of the same restart":                    {[]observed{{annotations: restart}, {annotations: restart}}, record{"h", "s", false, Moment{10, 1}}},
		"of another restart":                     {[]observed{{annotations: restart}, {annotations: m{"config-hash": "h", "applied-sources": "s", "last-reload": "q"}}}, record{"h", "s", false, Moment{20, 2}}},
		"that of a restart is removed":           {[]observed{{annotations: restart}, {annotations: full}}, record{"h", "s", false, Moment{10, 1}}},
		"of one that evicts, at the same moment": {[]observed{{annotations: restart}, {annotations: evicting}}, record{"h", "s", false, Moment{20, 2}}},
		"a pod was evicted":                      {[]observed{{annotations: evicting}, {annotations: m{"config-hash": "h", "applied-sources": "s", "last-reload": "r", "recreating": "q"}}}, record{"h", "s", false, Moment{10, 1}}},
		"all pods were":                          {[]observed{{annotations: evicting}, {annotations: restart}}, record{"h", "s", false, Moment{10, 1}}},
		"it is removed":                          {[]observed{{annotations: full}, {}}, record{"h", "s", true, Moment{10, 1}}},
		"it is removed for long":                 {[]observed{{annotations: full}, {}, {}}, record{"h", "s", true, Moment{10, 1}}},
		"a part of it is removed":                {[]observed{{annotations: full}, {annotations: m{"config-hash": "h"}}}, record{"h", "s", true, Moment{10, 1}}},
		"the hash is removed":                    {[]observed{{annotations: full}, {annotations: m{"applied-sources": "s"}}}, record{"h", "s", true, Moment{10, 1}}},
		"it had no sources":                      {[]observed{{annotations: m{"config-hash": "h"}}, {annotations: m{"config-hash": "h"}}}, record{"h", "", false, Moment{10, 1}}},
		"another one without sources":            {[]observed{{annotations: full}, {annotations: m{"config-hash": "i"}}}, record{"i", "", false, Moment{20, 2}}},
		"another one with the same":              {[]observed{{annotations: full}, {annotations: m{"config-hash": "i", "applied-sources": "s"}}}, record{"i", "s", false, Moment{20, 2}}},
		"it is removed, and so are pods":         {[]observed{{annotations: full}, {image: "2"}}, record{}},
		"its key is replaced":                    {[]observed{{annotations: full, rekeyed: "v1.b.k"}, {annotations: full}}, record{"v1.b.k", "rekeyed", false, Moment{10, 1}}},
		"its key is replaced, and it is written": {[]observed{{annotations: full, rekeyed: "v1.b.k"}, {annotations: m{"config-hash": "v1.b.k", "applied-sources": "rekeyed"}}}, record{"v1.b.k", "rekeyed", false, Moment{20, 2}}},
		"its key is replaced, and it is removed": {[]observed{{annotations: full, rekeyed: "v1.b.k"}, {}}, record{"v1.b.k", "rekeyed", true, Moment{10, 1}}},
		"it is removed, its key replaced":        {[]observed{{annotations: full}, {rekeyed: "v1.b.k"}, {}}, record{"v1.b.k", "rekeyed", true, Moment{10, 1}}},
		"it is removed, and written again":       {[]observed{{annotations: full}, {}, {annotations: full}}, record{"h", "s", false, Moment{10, 1}}},
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

// Of a workload that was created before our eyes, all templates are known.
func TestWorkload_StartOfANewOne(t *testing.T) {
	for name, tt := range map[string]struct {
		do   []observed
		want bool
	}{
		"another template":        {[]observed{{image: "1"}, {image: "2"}}, false},
		"a third one":             {[]observed{{image: "1"}, {image: "2"}, {image: "3"}}, false},
		"the first comes back":    {[]observed{{image: "1"}, {image: "2"}, {image: "1"}}, true},
		"one in a list":           {[]observed{{image: "1"}, {image: "1", listed: true}, {image: "2"}}, true},
		"created again":           {[]observed{{image: "1", listed: true}, {image: "1", another: true}, {image: "2", another: true}}, false},
		"created again, unseen":   {[]observed{{image: "1"}, {image: "1", another: true, listed: true}, {image: "2", another: true}}, true},
		"deleted, and then again": {[]observed{{image: "1"}, {image: "1", another: true, gone: true}, {image: "2", another: true}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if w := readAll(tt.do...); w.StartUnsure != tt.want {
				t.Errorf("unsure %v, want %v", w.StartUnsure, tt.want)
			}
		})
	}
}

// A template that comes in the middle of a rollout may be one from before, whose pods were never
// replaced, unless we made it: it carries a time that no other has.
func TestWorkload_StartIsUnsure(t *testing.T) {
	const noon, later, atNoon = "2026-01-01T12:00:00Z", "2026-01-01T12:00:00.5Z", 1767268800
	recordOf := func(hash, at string) map[string]string {
		return map[string]string{"config-hash": hash, "last-reload": `{"time":"` + at + `"}`}
	}
	us := []string{OwnFieldManager}
	recreated := observed{image: "1", stamp: "h", annotations: recordOf("i", later)}
	done := appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3}
	for name, tt := range map[string]struct {
		do     []observed // the first is listed
		want   bool
		before string // the revision
	}{
		"first seen":                      {[]observed{{image: "1", revision: "1"}}, false, ""},
		"a rollout after another":         {[]observed{{image: "1", revision: "1", status: done}, {image: "2", revision: "1"}}, false, "1"},
		"in the middle of another":        {[]observed{{image: "1", revision: "1"}, {image: "2", revision: "1"}}, true, "1"},
		"the same, since one complete":    {[]observed{{image: "1", status: done}, {image: "2"}, {image: "3"}}, false, ""},
		"back to the complete one":        {[]observed{{image: "1", status: done}, {image: "2"}, {image: "1"}}, true, ""},
		"back to another one":             {[]observed{{image: "1", status: done}, {image: "2"}, {image: "3"}, {image: "2"}}, true, ""},
		"back to one before the complete": {[]observed{{image: "0"}, {image: "1", status: done}, {image: "2"}, {image: "0"}}, false, ""},
		"pods of it are replaced":         {[]observed{{image: "1", status: done}, {image: "1"}, {image: "2"}, {image: "1"}}, true, ""},
		"others, while they are":          {[]observed{{image: "1", status: done}, {image: "1"}, {image: "1"}, {image: "2"}, {image: "3"}}, false, ""},
		"one may have been missed":        {[]observed{{image: "1", status: done}, {image: "2"}, {image: "2", listed: true}, {image: "3"}}, true, ""},
		"none before one in a list":       {[]observed{{image: "1", status: done}, {image: "2", listed: true}}, false, ""},
		"one after one in a list":         {[]observed{{image: "1", status: done}, {image: "2", listed: true}, {image: "3"}}, true, ""},
		"one after a complete list":       {[]observed{{image: "1"}, {image: "2", listed: true, status: done}, {image: "3"}, {image: "4"}}, false, ""},
		"as many as are remembered": {[]observed{
			{image: "1", status: done}, {image: "2"}, {image: "3"}, {image: "4"}, {image: "5"}, {image: "6"},
			{image: "7"}, {image: "8"}, {image: "9"},
		}, false, ""},
		"too many to remember": {[]observed{{image: "1", status: done}, {image: "2"}, {image: "3"}, {image: "4"}, {image: "5"}, {image: "6"},
			{image: "7"}, {image: "8"}, {image: "9"}, {image: "10"}}, true, ""},
		"it goes on":                     {[]observed{{image: "1", revision: "1"}, {image: "2", revision: "1"}, {image: "2", revision: "2", status: done}}, true, "1"},
		"one that we made":               {[]observed{{image: "1"}, {image: "1", reloadedAt: noon}}, false, ""},
		"one with the time of the other": {[]observed{{image: "1", reloadedAt: noon}, {image: "2", reloadedAt: noon}}, true, ""},
		"a later one that we made":       {[]observed{{image: "1", reloadedAt: noon}, {image: "1", reloadedAt: later}}, false, ""},
		"an earlier one comes back":      {[]observed{{image: "1", reloadedAt: later}, {image: "1", reloadedAt: noon}}, true, ""},
		"earlier than one before":        {[]observed{{image: "1", reloadedAt: later}, {image: "2"}, {image: "1", reloadedAt: noon}}, true, ""},
		"with an invalid time":           {[]observed{{image: "1"}, {image: "1", reloadedAt: "now"}}, true, ""},
		"one that only the record dates": {[]observed{{image: "1"}, {image: "1", stamp: "h", annotations: recordOf("h", noon)}}, false, ""},
		"a while after the one before":   {[]observed{{image: "1", written: atNoon - 121}, {image: "1", reloadedAt: noon}}, false, ""},
		"too soon after the one before":  {[]observed{{image: "1", written: atNoon - 120}, {image: "1", reloadedAt: noon}}, true, ""},
		"it is seen that we made it":     {[]observed{{image: "1", written: atNoon}, {image: "1", reloadedAt: noon, written: atNoon, by: us}}, false, ""},
		"others wrote then":              {[]observed{{image: "1", written: atNoon}, {image: "1", reloadedAt: noon, written: atNoon, by: []string{OwnFieldManager, "owner"}}}, true, ""},
		"others, and we":                 {[]observed{{image: "1", written: atNoon}, {image: "1", reloadedAt: noon, written: atNoon, by: []string{"owner", OwnFieldManager}}}, true, ""},
		"it is listed":                   {[]observed{{image: "1", written: atNoon}, {image: "1", reloadedAt: noon, written: atNoon, by: us, listed: true}}, false, ""},
		"we made it without a time":      {[]observed{{image: "1", written: atNoon}, {image: "1", stamp: "h", written: atNoon, by: us}}, false, ""},
		"the same without a time":        {[]observed{{image: "1", stamp: "h", written: atNoon, by: us}, {image: "2", stamp: "h", written: atNoon, by: us}}, true, ""},
		"we made the one before":         {[]observed{{image: "1", reloadedAt: noon, written: atNoon, by: us}, {image: "2", reloadedAt: noon, written: atNoon, by: us}}, true, ""},
		"soon after a known restart":     {[]observed{{image: "1", written: atNoon - 1, reloadedAt: noon}, {image: "1", reloadedAt: later}}, false, ""},
		"and the owner changes":          {[]observed{{image: "1"}, {image: "1", stamp: "h", annotations: recordOf("h", noon)}, {image: "2", stamp: "h", annotations: recordOf("h", noon)}}, true, ""},
		"and comes back":                 {[]observed{{image: "1", stamp: "h", annotations: recordOf("h", later)}, {image: "1", stamp: "g", annotations: recordOf("g", noon)}}, true, ""},
		"the record is of an eviction":   {[]observed{{image: "1"}, {image: "2", stamp: "h", annotations: recordOf("i", noon)}}, true, ""},
		"it was of an eviction before":   {[]observed{recreated, {image: "2", stamp: "i", annotations: recordOf("i", later)}}, true, ""},
		"the record has an invalid time": {[]observed{{image: "1"}, {image: "1", stamp: "h", annotations: recordOf("h", "now")}}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tt.do[0].listed = true
			w := readAll(tt.do...)
			if w.StartUnsure != tt.want || w.RevisionBefore != tt.before {
				t.Errorf("unsure %v, revision %q before, want %v, %q", w.StartUnsure, w.RevisionBefore, tt.want, tt.before)
			}
		})
	}
}

// Pods of other kinds may be left of a template of before, although no rollout was under way.
func TestWorkload_Restarted(t *testing.T) {
	before := &Workload{}
	for countsAll, want := range map[bool][2]bool{true: {true, true}, false: {false, true}} {
		for i, marks := range []Marks{{TemplateHash: "v"}, {ReloadedAt: "v"}} {
			w := &Workload{Traits: Traits{CountsAll: countsAll}, Marks: marks, writtenByUs: true}
			if got := w.restarted(before); got != want[i] {
				t.Errorf("rollouts count all: %v, %+v: %v", countsAll, marks, got)
			}
			if w.writtenByUs = false; w.restarted(before) {
				t.Errorf("rollouts count all: %v, %+v of another client", countsAll, marks)
			}
		}
	}
}

// When all pods were of another template than the one that is there now.
func TestWorkload_PodsAfter(t *testing.T) {
	done := appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3}
	for name, tt := range map[string]struct {
		do   []observed
		want Moment
	}{
		"not known":                {[]observed{{image: "1"}, {image: "2"}}, Moment{}},
		"a rollout after another":  {[]observed{{image: "1", status: done}, {image: "2"}}, Moment{10, 1}},
		"seen once more":           {[]observed{{image: "1", status: done}, {image: "1", status: done}, {image: "2"}}, Moment{20, 2}},
		"it goes on":               {[]observed{{image: "1", status: done}, {image: "2"}, {image: "2"}}, Moment{10, 1}},
		"it is complete":           {[]observed{{image: "1", status: done}, {image: "2"}, {image: "2", status: done}}, Moment{10, 1}},
		"one rollout further":      {[]observed{{image: "1", status: done}, {image: "2"}, {image: "3"}}, Moment{10, 1}},
		"whatever was missed":      {[]observed{{image: "1", status: done}, {image: "2", listed: true}, {image: "3"}}, Moment{10, 1}},
		"back to that template":    {[]observed{{image: "1", status: done}, {image: "2"}, {image: "1"}}, Moment{}},
		"back to one before that":  {[]observed{{image: "0"}, {image: "1", status: done}, {image: "2"}, {image: "0"}}, Moment{20, 2}},
		"pods of it are replaced":  {[]observed{{image: "1", status: done}, {image: "1"}, {image: "2"}}, Moment{10, 1}},
		"another object":           {[]observed{{image: "1", status: done}, {image: "2", another: true}, {image: "3", another: true}}, Moment{}},
		"the process knew nothing": {[]observed{{image: "1", status: done}, {image: "2", gone: true}, {image: "3"}}, Moment{}},
	} {
		t.Run(name, func(t *testing.T) {
			if w := readAll(tt.do...); w.PodsAfter != tt.want {
				t.Errorf("got %v, want %v", w.PodsAfter, tt.want)
			}
		})
	}
}

// A list that shows a later write of the same template may hide that another one has come and gone, unless
// the revision shows that none has.
func TestWorkload_StartedBy(t *testing.T) {
	for name, tt := range map[string]struct {
		do   []observed
		want uint64
	}{
		"watched":                                {[]observed{{image: "1", written: 1}, {image: "1", written: 2}}, 10},
		"listed as it was":                       {[]observed{{image: "1", written: 1}, {image: "1", written: 1, listed: true}}, 10},
		"listed, and written since":              {[]observed{{image: "1", written: 1}, {image: "1", written: 2, listed: true}}, 20},
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

// A rollout since the template changed has a higher number than the last one before it.
func TestWorkload_RevisionIsNew(t *testing.T) {
	for name, tt := range map[string]struct {
		do   []observed
		want bool
	}{
		"counted":                    {[]observed{{image: "1", revision: "1"}, {image: "2", revision: "1"}, {image: "2", revision: "2"}}, true},
		"not counted yet":            {[]observed{{image: "1", revision: "1"}, {image: "2", revision: "1"}}, false},
		"back to an earlier one":     {[]observed{{image: "1", revision: "1"}, {image: "2", revision: "2"}, {image: "1", revision: "2"}, {image: "1", revision: "1"}}, false},
		"ten are more than nine":     {[]observed{{image: "1", revision: "9"}, {image: "2", revision: "9"}, {image: "2", revision: "10"}}, true},
		"no number before":           {[]observed{{image: "1"}, {image: "2"}, {image: "2", revision: "1"}}, false},
		"what is no number":          {[]observed{{image: "1", revision: "1"}, {image: "2", revision: "1"}, {image: "2", revision: "x"}}, false},
		"seen for the first time":    {[]observed{{image: "1", revision: "1"}}, false},
		"of a template that goes on": {[]observed{{image: "1", revision: "1"}, {image: "1", revision: "2"}}, false},
		"counted in a list":          {[]observed{{image: "1", revision: "1"}, {image: "2", revision: "2", listed: true}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if w := readAll(tt.do...); w.RevisionIsNew() != tt.want {
				t.Errorf("got %v, want %v", w.RevisionIsNew(), tt.want)
			}
		})
	}
}

// The pods of a paused Deployment are those of the template with which it was paused, and when
// that was not seen, those of which its status tells.
func TestWorkload_TemplateOfAPausedDeployment(t *testing.T) {
	all := appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 3}
	none := appsv1.DeploymentStatus{Replicas: 3}
	some := appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 1}
	for name, tt := range map[string]struct {
		do      []observed
		pending bool
	}{
		"it is not paused":               {[]observed{{image: "1"}, {image: "2"}}, false},
		"paused":                         {[]observed{{image: "1"}, {image: "1", paused: true}}, false},
		"paused with another template":   {[]observed{{image: "1"}, {image: "2", paused: true, status: all}}, true},
		"and back":                       {[]observed{{image: "1"}, {image: "2", paused: true}, {image: "1", paused: true}}, false},
		"resumed":                        {[]observed{{image: "1"}, {image: "2", paused: true}, {image: "2"}}, false},
		"made as it is, before our eyes": {[]observed{{image: "1", paused: true}}, true},
		"found, and all pods are of the template":             {[]observed{{image: "1", paused: true, listed: true, status: all}}, false},
		"found, and no pod is of the template":                {[]observed{{image: "1", paused: true, listed: true, status: none}}, true},
		"found, and it is not known":                          {[]observed{{image: "1", paused: true, listed: true, status: some}}, false},
		"found, not known, and then no pod is":                {[]observed{{image: "1", paused: true, listed: true, status: some}, {image: "1", paused: true, status: none}}, true},
		"found, all were, and then no pod is":                 {[]observed{{image: "1", paused: true, listed: true, status: all}, {image: "1", paused: true, status: none}}, false},
		"found, not known, and it goes on":                    {[]observed{{image: "1", paused: true, listed: true, status: some}, {image: "1", paused: true, status: some}}, false},
		"found, not known, and the template is new":           {[]observed{{image: "1", paused: true, listed: true, status: some}, {image: "2", paused: true, status: some}}, true},
		"found, not known, of another no pod is, and back":    {[]observed{{image: "1", paused: true, listed: true, status: some}, {image: "2", paused: true, status: none}, {image: "1", paused: true, status: some}}, false},
		"and then no pod is of that":                          {[]observed{{image: "1", paused: true, listed: true, status: some}, {image: "2", paused: true, status: none}, {image: "1", paused: true, status: none}}, true},
		"listed with another template, of which all pods are": {[]observed{{image: "1"}, {image: "2", paused: true, listed: true, status: all}}, false},
		"listed with another template, of which some are":     {[]observed{{image: "1"}, {image: "2", paused: true, listed: true, status: some}}, false},
		"listed with another template, of which none is":      {[]observed{{image: "1"}, {image: "2", paused: true, listed: true, status: none}}, true},
		"listed with the template, of which none is":          {[]observed{{image: "1"}, {image: "1", paused: true, listed: true, status: none}}, true},
		"still paused, and listed":                            {[]observed{{image: "1"}, {image: "2", paused: true}, {image: "2", paused: true, listed: true, status: none}}, true},
		"resumed and paused unseen":                           {[]observed{{image: "1"}, {image: "2", paused: true}, {image: "2", paused: true, listed: true, status: some}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := readAll(tt.do...).TemplatePending; got != tt.pending {
				t.Errorf("the template is pending: %v, want %v", got, tt.pending)
			}
		})
	}
}

// When a workload began to say what it says of its restarts, and of what counts, is remembered; of the
// latter the first change after a record.
func TestWorkload_Opt(t *testing.T) {
	type step struct {
		in       bool
		scope    string
		recorded uint64
	}
	for name, tt := range map[string]struct {
		do            []step // in versions 10, 20 and so on
		opted, scoped Moment
	}{
		"first seen":                      {[]step{{true, "a", 0}}, Moment{}, Moment{}},
		"nothing changes":                 {[]step{{true, "a", 0}, {true, "a", 0}}, Moment{}, Moment{}},
		"it opts in":                      {[]step{{false, "a", 0}, {true, "a", 0}}, Moment{20, 2}, Moment{}},
		"it stays in":                     {[]step{{false, "a", 0}, {true, "a", 0}, {true, "a", 0}}, Moment{20, 2}, Moment{}},
		"another scope":                   {[]step{{true, "a", 0}, {true, "b", 0}}, Moment{}, Moment{20, 2}},
		"it stays":                        {[]step{{true, "a", 0}, {true, "b", 0}, {true, "b", 0}}, Moment{}, Moment{20, 2}},
		"and once more":                   {[]step{{true, "a", 0}, {true, "b", 0}, {true, "c", 0}}, Moment{}, Moment{20, 2}},
		"a record was written since then": {[]step{{true, "a", 0}, {true, "b", 0}, {true, "b", 30}}, Moment{}, Moment{20, 2}},
		"one with another scope":          {[]step{{true, "a", 0}, {true, "b", 0}, {true, "c", 30}}, Moment{}, Moment{30, 3}},
		"and then another scope":          {[]step{{true, "a", 0}, {true, "b", 0}, {true, "b", 30}, {true, "c", 30}}, Moment{}, Moment{40, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			var last *Workload
			for i, s := range tt.do {
				w := &Workload{RecordedAt: Moment{s.recorded, s.recorded / 10}}
				w.Opt(Opting{In: s.in, Scope: ShareText(s.scope)}, last, string(rune('1'+i))+"0", Arrival{Order: uint64(i + 1)})
				last = w
			}
			if last.OptedAt != tt.opted || last.ScopedAt != tt.scoped {
				t.Errorf("opted at %v, scoped at %v, want %v and %v", last.OptedAt, last.ScopedAt, tt.opted, tt.scoped)
			}
		})
	}
}

// A rollout that is complete says nothing of pods that its rules do not count: those of a DaemonSet on nodes
// that are to have none, and those of a StatefulSet that is scaled down. A template that comes then may be the
// one that such a pod has.
func TestWorkload_CompleteBesideOtherPods(t *testing.T) {
	for name, tt := range map[string]struct {
		surplus, unsure bool
	}{
		"all are counted": {false, false},
		"there is a tainted node, or the StatefulSet is scaled down": {true, true},
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
				t.Errorf("%s, unsure %v, pods after %v", w.Rollout.Phase, w.StartUnsure, w.PodsAfter)
			}
		})
	}
}
