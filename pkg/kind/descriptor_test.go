// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/configdep/configdep/pkg/dependency"
)

func TestNew(t *testing.T) {
	d := harbor()
	d.Alias, d.Versions, d.Fields, d.PerNode = "Harbor", []string{"v1beta1", "v1alpha3"}, true, true
	before, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	k := mustNew(t, d)
	if after, err := json.Marshal(d); err != nil || !bytes.Equal(before, after) {
		t.Errorf("New has changed the descriptor to %s", after)
	}
	want := dependency.Traits{Rollable: true, PerNode: true, Restart: &dependency.Restart{}, UnknownPods: true, Custom: true, Fields: true}
	if diff := cmp.Diff(want, k.Traits); diff != "" {
		t.Errorf("traits (-want +got):\n%s", diff)
	}
	if !k.Optional || k.Name != "Harbor" || k.Kind != "HarborCluster" || !slices.Equal(k.Versions, d.Versions) {
		t.Errorf("%+v", k)
	}
	if got := k.Served().String(); got != "goharbor.io/v1beta1, Resource=harborclusters" {
		t.Error(got)
	}
	if got := k.GroupVersionKind().String(); got != "goharbor.io/v1beta1, Kind=HarborCluster" {
		t.Error(got)
	}
	d.Alias = "HarborCluster"
	if k := mustNew(t, d); k.Name != "HarborCluster" || k.GroupVersionKind().Kind != "HarborCluster" {
		t.Errorf("%+v", k)
	}
}

func TestNew_Restart(t *testing.T) {
	one, several := []TemplatePath{{".spec.template"}}, []TemplatePath{{".spec.template"}, {".spec.other"}, {".spec.jobs[*].template"}}
	for name, tt := range map[string]struct {
		templates []TemplatePath
		reload    Reload
		want      *dependency.Restart
		rollable  bool
	}{
		"the only template":       {one, Reload{By: ByTemplateAnnotation}, nil, true},
		"the ordinary template":   {several, Reload{By: ByTemplateAnnotation, Path: "['spec'].template"}, nil, true},
		"another template":        {several, Reload{By: ByTemplateAnnotation, Path: ".spec.other"}, &dependency.Restart{Template: []string{"spec", "other"}}, true},
		"the only one, elsewhere": {several[1:2], Reload{By: ByTemplateAnnotation}, &dependency.Restart{Template: []string{"spec", "other"}}, true},
		"the record":              {nil, Reload{By: ByAnnotation}, &dependency.Restart{}, true},
		"an annotation":           {nil, Reload{By: ByAnnotation, Annotation: "strimzi.io/manual-rolling-update", Value: "true"}, &dependency.Restart{Annotation: "strimzi.io/manual-rolling-update", Value: "true"}, true},
		"the time":                {nil, Reload{By: ByAnnotation, Annotation: "example.com/at"}, &dependency.Restart{Annotation: "example.com/at"}, true},
		"a field":                 {nil, Reload{By: ByField, Path: ".spec.restartAt"}, &dependency.Restart{Field: []string{"spec", "restartAt"}}, true},
		"an event":                {one, Reload{By: ByEvent}, &dependency.Restart{EventOnly: true}, true},
		"nothing":                 {one, Reload{By: ByNone}, nil, false},
	} {
		d := harbor()
		d.PodTemplates, d.Reload, d.RestartAt = tt.templates, tt.reload, tt.rollable
		k := mustNew(t, d)
		if diff := cmp.Diff(tt.want, k.Traits.Restart); diff != "" || k.Traits.Rollable != tt.rollable || k.Traits.RestartsAt != tt.rollable {
			t.Errorf("%s: rollable: %v (-want +got):\n%s", name, k.Traits.Rollable, diff)
		}
	}
}

func TestNew_Errors(t *testing.T) {
	const syntax = "allowed are .name, ['any name'] and [*]"
	status := func(s StatusPaths) func(*Descriptor) { return func(d *Descriptor) { d.Status = &s } }
	pods := func(p Pods) func(*Descriptor) { return func(d *Descriptor) { d.Pods = &p } }
	reload := func(r Reload) func(*Descriptor) { return func(d *Descriptor) { d.Reload = r } }
	sources := func(s ...SourceFields) func(*Descriptor) { return func(d *Descriptor) { d.Sources = s } }
	templates := func(paths ...string) func(*Descriptor) {
		return func(d *Descriptor) {
			d.PodTemplates = nil
			for _, p := range paths {
				d.PodTemplates = append(d.PodTemplates, TemplatePath{p})
			}
		}
	}
	secret := SourceFields{Kind: dependency.Secret, Name: ".spec.users[*].name"}
	beside := func(change func(*SourceFields)) func(*Descriptor) {
		s := secret
		change(&s)
		return sources(s)
	}
	for name, tt := range map[string]struct {
		change func(*Descriptor)
		want   []string
	}{
		"valid": {func(*Descriptor) {}, nil},
		"empty": {func(d *Descriptor) { *d = Descriptor{} }, []string{
			"kinds[2].group: Required value", "kinds[2].kind: Required value", "kinds[2].resource: Required value: the plural of the kind, as in the URLs of the API",
			"kinds[2].versions: Required value: at least one version", "kinds[2].reload.by: Required value: TemplateAnnotation, Annotation, Field, Event or None",
		}},
		"the core group":        {func(d *Descriptor) { d.Group = "apps" }, []string{`kinds[2].group: Invalid value: "apps": must be the group of a custom resource, which has a dot`}},
		"a group of Kubernetes": {func(d *Descriptor) { d.Group = "rbac.authorization.k8s.io" }, []string{`kinds[2].group: Invalid value: "rbac.authorization.k8s.io": must be the group of a custom resource, not one of Kubernetes or configdep itself`}},
		"the group of views":    {func(d *Descriptor) { d.Group = "configdep.io" }, []string{`kinds[2].group: Invalid value: "configdep.io": must be the group of a custom resource, not one of Kubernetes or configdep itself`}},
		"an invalid group":      {func(d *Descriptor) { d.Group = "A.b" }, []string{`kinds[2].group: Invalid value: "A.b": a lowercase RFC 1123 subdomain`}},
		"an invalid kind":       {func(d *Descriptor) { d.Kind = "a.b" }, []string{`kinds[2].kind: Invalid value: "a.b": a DNS-1035 label`}},
		"an invalid alias":      {func(d *Descriptor) { d.Alias = "a b" }, []string{`kinds[2].alias: Invalid value: "a b": a DNS-1035 label`}},
		"a kind of Kubernetes":  {func(d *Descriptor) { d.Kind = "StatefulSet" }, []string{`kinds[2].kind: Invalid value: "StatefulSet": is the name of a kind of Kubernetes itself: set alias to another name`}},
		"with an alias":         {func(d *Descriptor) { d.Kind, d.Alias = "StatefulSet", "AdvancedStatefulSet" }, nil},
		"an alias of Kubernetes": {func(d *Descriptor) { d.Alias = "deployMent" },
			[]string{`kinds[2].alias: Invalid value: "deployMent": is the name of a kind of Kubernetes itself: set alias to another name`}},
		"an invalid resource": {func(d *Descriptor) { d.Resource = "Harbors" }, []string{`kinds[2].resource: Invalid value: "Harbors": a DNS-1035 label`}},
		"versions": {func(d *Descriptor) { d.Versions = []string{"v1", "1", "v1"} },
			[]string{`kinds[2].versions[1]: Invalid value: "1": a DNS-1035 label`, `kinds[2].versions[2]: Duplicate value: "v1"`}},
		"many versions": {func(d *Descriptor) { d.Versions = strings.Split("a b c d e f g h i", " ") }, []string{`kinds[2].versions: Too many: 9: must have at most 8 items`}},
		"8 versions":    {func(d *Descriptor) { d.Versions = strings.Split("a b c d e f g h", " ") }, nil},

		"templates": {templates(".spec.t", "", "x", ".metadata", ".status.t", "[*]", "['spec'].t"), []string{
			"kinds[2].podTemplates[1].path: Required value: a path such as .spec.template",
			`kinds[2].podTemplates[2].path: Invalid value: "x": at byte 1: ` + syntax + `; this is "x"`,
			`kinds[2].podTemplates[3].path: Invalid value: ".metadata": must begin with a name other than apiVersion, kind, metadata and status`,
			`kinds[2].podTemplates[4].path: Invalid value: ".status.t": must begin with a name other than apiVersion, kind, metadata and status`,
			`kinds[2].podTemplates[5].path: Invalid value: "[*]": must begin with a name other than apiVersion, kind, metadata and status`,
			`kinds[2].podTemplates[6].path: Duplicate value: "['spec'].t"`,
		}},
		"many templates": {templates(strings.Split(".a .b .c .d .e .f .g .h .i", " ")...), []string{"kinds[2].podTemplates: Too many: 9: must have at most 8 items"}},
		"8 templates":    {templates(strings.Split(".a .b .c .d .e .f .g .h", " ")...), nil},
		"a long path": {templates("." + strings.Repeat("x", 600)),
			[]string{`kinds[2].podTemplates[0].path: Invalid value: ".` + strings.Repeat("x", 511) + `…": must have at most 512 bytes`}},

		"a source of another kind": {beside(func(s *SourceFields) { s.Kind = "SecretProviderClass" }), []string{`kinds[2].sources[0].kind: Unsupported value: "SecretProviderClass": supported values: "ConfigMap", "Secret"`}},
		"a source without a name":  {sources(secret, SourceFields{Kind: dependency.Secret}), []string{"kinds[2].sources[1].name: Required value: a path such as .spec.template"}},
		"a key of another element": {beside(func(s *SourceFields) { s.Key, s.Namespace = ".spec.others[*].key", "[*].ns" }), []string{
			`kinds[2].sources[0].namespace: Invalid value: "[*].ns": each [*] must be the same as in name`,
			`kinds[2].sources[0].key: Invalid value: ".spec.others[*].key": each [*] must be the same as in name`,
		}},
		"a key of the object":            {beside(func(s *SourceFields) { s.Key, s.Namespace, s.KeyName = ".spec.key", ".spec.users[*].ns", "a.b" }), nil},
		"an invalid key":                 {beside(func(s *SourceFields) { s.KeyName = "a/b" }), []string{`kinds[2].sources[0].keyName: Invalid value: "a/b": a valid config key`}},
		"an invalid path":                {beside(func(s *SourceFields) { s.Key = "x" }), []string{`kinds[2].sources[0].key: Invalid value: "x": at byte 1: ` + syntax + `; this is "x"`}},
		"many sources":                   {sources(slices.Repeat([]SourceFields{secret}, 65)...), []string{"kinds[2].sources: Too many: 65: must have at most 64 items"}},
		"64 sources":                     {sources(slices.Repeat([]SourceFields{secret}, 64)...), nil},
		"pods of its own":                {pods(Pods{}), nil},
		"pods by labels, without labels": {pods(Pods{Controller: ControlledByAny}), []string{"kinds[2].pods.labels: Required value: they alone say which pods are its own if controller is Any"}},
		"labels without a meaning":       {pods(Pods{Labels: map[string]string{"a": "b"}}), []string{"kinds[2].pods.labels: Forbidden: has no meaning unless controller is Any"}},
		"labels": {pods(Pods{Controller: ControlledByAny, Labels: map[string]string{"a b": "c", "d": "$(name)-x", "e": "$(namespace)"}}),
			[]string{`kinds[2].pods.labels: Invalid value: "a b": name part must consist`, `kinds[2].pods.labels[e]: Invalid value: "$(namespace)": a valid label`}},
		"many labels": {pods(Pods{Controller: ControlledByAny, Labels: manyLabels(17)}), []string{"kinds[2].pods.labels: Too many: 17: must have at most 16 items"}},
		"16 labels":   {pods(Pods{Controller: ControlledByAny, Labels: manyLabels(16)}), nil},
		"a controller": {pods(Pods{Controller: "StatefulSet"}),
			[]string{`kinds[2].pods.controller: Unsupported value: "StatefulSet": supported values: "Workload", "ReplicaSet", "Any"`}},
		"ReplicaSets without a revision": {pods(Pods{Controller: ControlledByReplicaSet}), []string{"kinds[2].pods.revisionLabel: Required value: to find the current ReplicaSet"}},
		"a revision without a label":     {pods(Pods{Revision: ".status.hash"}), []string{"kinds[2].pods.revisionLabel: Required value: revisionLabel and revision must be set together"}},
		"a revision of many": {pods(Pods{Revision: ".status.hashes[*]", RevisionLabel: "a b"}),
			[]string{`kinds[2].pods.revisionLabel: Invalid value: "a b": name part must consist`, `kinds[2].pods.revision: Invalid value: ".status.hashes[*]": must not contain [*]`}},

		"another way":          {reload(Reload{By: "Restart"}), []string{`kinds[2].reload.by: Unsupported value: "Restart": supported values: "TemplateAnnotation", "Annotation", "Field", "Event", "None"`}},
		"one of two templates": {reload(Reload{By: ByTemplateAnnotation}), []string{"kinds[2].reload.path: Required value: which of podTemplates is changed; it is known only if there is one"}},
		"another template":     {reload(Reload{By: ByTemplateAnnotation, Path: ".spec.other"}), []string{`kinds[2].reload.path: Invalid value: ".spec.other": must be one of podTemplates`}},
		"many templates at once": {reload(Reload{By: ByTemplateAnnotation, Path: ".spec.jobs[*].template"}),
			[]string{`kinds[2].reload.path: Invalid value: ".spec.jobs[*].template": must not contain [*]: one pod template is changed`}},
		"an invalid template": {reload(Reload{By: ByTemplateAnnotation, Path: "x"}), []string{`kinds[2].reload.path: Invalid value: "x": at byte 1: ` + syntax + `; this is "x"`}},
		"an invalid only template, told once": {func(d *Descriptor) {
			templates("x")(d)
			d.Reload = Reload{By: ByTemplateAnnotation}
		}, []string{`kinds[2].podTemplates[0].path: Invalid value: "x": at byte 1: ` + syntax + `; this is "x"`}},
		"no template": {func(d *Descriptor) { d.PodTemplates, d.Reload = nil, Reload{By: ByTemplateAnnotation} },
			[]string{"kinds[2].reload.path: Required value: which of podTemplates is changed; it is known only if there is one"}},
		"no field":              {reload(Reload{By: ByField}), []string{"kinds[2].reload.path: Required value: a path such as .spec.template"}},
		"a field of the status": {reload(Reload{By: ByField, Path: ".status.at"}), []string{`kinds[2].reload.path: Invalid value: ".status.at": must begin with a name other than apiVersion, kind, metadata and status`}},
		"fields":                {reload(Reload{By: ByField, Path: ".spec.x[*].at"}), []string{`kinds[2].reload.path: Invalid value: ".spec.x[*].at": must not contain [*]`}},
		"all fields":            {reload(Reload{By: ByField, Path: ".spec"}), []string{`kinds[2].reload.path: Invalid value: ".spec": must not be all of spec`}},
		"a field in a template": {func(d *Descriptor) {
			templates(".spec.jobs[*].template")(d)
			d.Reload = Reload{By: ByField, Path: ".spec.jobs.a.template.at"}
		},
			[]string{`kinds[2].reload.path: Invalid value: ".spec.jobs.a.template.at": must not be`}},
		"a field with a template": {func(d *Descriptor) { templates(".spec.a.template")(d); d.Reload = Reload{By: ByField, Path: ".spec.a"} },
			[]string{`kinds[2].reload.path: Invalid value: ".spec.a": must not be`}},
		"a field that is read": {func(d *Descriptor) {
			d.Status = &StatusPaths{Replicas: ".spec.replicas"}
			d.Reload = Reload{By: ByField, Path: ".spec.replicas"}
		}, []string{`kinds[2].reload.path: Invalid value: ".spec.replicas": must not be`}},
		"a field beside others": {func(d *Descriptor) {
			d.Status = &StatusPaths{Replicas: ".spec.a.replicas"}
			d.Reload = Reload{By: ByField, Path: ".spec.a.at"}
		}, nil},
		"an annotation":       {reload(Reload{By: ByAnnotation, Annotation: "a b"}), []string{`kinds[2].reload.annotation: Invalid value: "a b": name part must consist`}},
		"a value without one": {reload(Reload{By: ByAnnotation, Value: "x"}), []string{"kinds[2].reload.value: Forbidden: requires annotation"}},
		"a long value":        {reload(Reload{By: ByAnnotation, Annotation: "a/b", Value: strings.Repeat("x", 1025)}), []string{"kinds[2].reload.value: Too long: may not be more than 1024 bytes"}},
		"fields without a meaning": {reload(Reload{By: ByNone, Path: ".a", Annotation: "b", Value: "c", Unless: ".d"}), []string{
			"kinds[2].reload.path: Forbidden: has no meaning if by is None", "kinds[2].reload.annotation: Forbidden: has no meaning if by is None",
			"kinds[2].reload.value: Forbidden: has no meaning if by is None", "kinds[2].reload.unless: Forbidden: has no meaning if by is None",
		}},
		"tests of the specification": {reload(Reload{By: ByTemplateAnnotation, Path: ".spec.template", NoRollout: []FieldTest{{}, {Path: ".a"}, {Path: ".a", Value: "x", Not: "y"}, {Path: "a", Value: "x"}}}), []string{
			"kinds[2].reload.noRollout[0]: Required value: either value or not", "kinds[2].reload.noRollout[0].path: Required value: a path such as .spec.template",
			"kinds[2].reload.noRollout[1]: Required value: either value or not", "kinds[2].reload.noRollout[2]: Required value: either value or not",
			`kinds[2].reload.noRollout[3].path: Invalid value: "a": at byte 1`,
		}},
		"many tests of the specification": {reload(Reload{By: ByTemplateAnnotation, Path: ".spec.template", NoRollout: slices.Repeat([]FieldTest{{Path: ".a", Value: "x"}}, 17)}),
			[]string{"kinds[2].reload.noRollout: Too many: 17: must have at most 16 items"}},
		"no rollout of what has none": {reload(Reload{By: ByEvent, NoRollout: []FieldTest{{Path: ".a[*].b", Not: "x"}}}), []string{"kinds[2].reload.noRollout: Forbidden: has no meaning if by is Event"}},
		"a path without a meaning":    {reload(Reload{By: ByEvent, Path: ".a"}), []string{"kinds[2].reload.path: Forbidden: has no meaning if by is Event"}},
		"unless many":                 {reload(Reload{By: ByEvent, Unless: ".a[*]"}), []string{`kinds[2].reload.unless: Invalid value: ".a[*]": must not contain [*]`}},
		"restartAt of what is only shown": {func(d *Descriptor) { d.Reload, d.RestartAt = Reload{By: ByNone}, true },
			[]string{"kinds[2].restartAt: Forbidden: cannot be set if reload.by is None"}},

		"status": {status(StatusPaths{
			ObservedGeneration: "a", Replicas: ".a[*]", Total: ".b", Updated: "", Ready: ".", Paused: "[", Partition: ".p",
		}), []string{
			`kinds[2].status.observedGeneration: Invalid value: "a": at byte 1`, `kinds[2].status.replicas: Invalid value: ".a[*]": must not contain [*]`,
			`kinds[2].status.ready: Invalid value: ".": at byte 1: a name is expected`, `kinds[2].status.paused: Invalid value: "[": at byte 1`,
			"kinds[2].status.total: Forbidden: has no meaning without updated", "kinds[2].status.partition: Forbidden: has no meaning without updated",
		}},
		"tests": {status(StatusPaths{
			Complete: []StatusTest{{}, {Condition: "Ready", Path: ".a"}, {Condition: "Ready", Status: "true"}, {Condition: "Ready", Value: "x"}},
			Failed:   []StatusTest{{Path: ".a"}, {Path: ".a", Value: "x", Status: "True"}, {Path: "[*]", Value: "x"}, {Path: ".a", Value: "x", Reason: "R"}},
			Held:     slices.Repeat([]StatusTest{{Condition: "Ready"}}, 17),
		}), []string{
			"kinds[2].status.complete[0]: Required value: either condition or path", "kinds[2].status.complete[1]: Required value: either condition or path",
			`kinds[2].status.complete[2].status: Unsupported value: "true": supported values: "True", "False", "Unknown"`,
			"kinds[2].status.complete[3].value: Forbidden: has no meaning without path",
			"kinds[2].status.failed[0].value: Required value", "kinds[2].status.failed[1]: Forbidden: status and reason have no meaning without condition",
			`kinds[2].status.failed[2].path: Invalid value: "[*]": must not contain [*]`, "kinds[2].status.failed[3]: Forbidden: status and reason have no meaning without condition",
			"kinds[2].status.held: Too many: 17: must have at most 16 items",
		}},
		"16 tests": {status(StatusPaths{Held: slices.Repeat([]StatusTest{{Condition: "Ready"}}, 16)}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := harbor()
			tt.change(&d)
			k, errs := New(d, field.NewPath("kinds").Index(2))
			if (k == nil) != (len(tt.want) > 0) || len(errs) != len(tt.want) {
				t.Fatalf("%v, %d errors, want %d:\n%v", k != nil, len(errs), len(tt.want), errs)
			}
			for i, err := range errs {
				if !strings.HasPrefix(err.Error(), tt.want[i]) {
					t.Errorf("%s\nwant %s", err, tt.want[i])
				}
			}
		})
	}
}

func manyLabels(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprint("l", i)] = "x"
	}
	return labels
}

// What status reports, without a preset that has all of it.
func TestStatus(t *testing.T) {
	d := harbor()
	d.Pods = &Pods{}
	known := d
	known.Status = &StatusPaths{
		ObservedGeneration: ".status.observed", Replicas: ".spec.replicas", Total: ".status.total", Updated: ".status.updated", Ready: ".status.ready",
		Paused: ".spec.paused", Partition: ".spec.partition", Held: []StatusTest{{Condition: "Waiting", Reason: "Window"}},
	}
	bare := d
	bare.Pods, bare.Status = nil, &StatusPaths{Complete: []StatusTest{{Condition: "Ready"}, {Path: ".status.n", Value: "2"}, {Path: ".status.b", Value: "false"}}}
	uncounted := d
	uncounted.Status = &StatusPaths{Updated: ".status.updated", Replicas: ".spec.replicas"}
	done := dependency.Rollout{Phase: dependency.RolloutComplete}
	for name, tt := range map[string]struct {
		d        Descriptor
		object   string
		want     dependency.Status
		progress Progress
	}{
		"no status": {d, `{}`, dependency.Status{Rollout: done, Replicas: 1}, Progress{Observed: true}},
		"nothing there yet": {
			known, `{"metadata":{"generation":1}}`, dependency.Status{Rollout: unobserved, Replicas: 1}, Progress{Outdated: 0},
		},
		"done": {
			known, `{"metadata":{"generation":2},"spec":{"replicas":2},"status":{"observed":2,"total":2,"updated":2,"ready":2}}`,
			dependency.Status{Rollout: done, Replicas: 2}, Progress{Observed: true, Pods: 2},
		},
		"a later generation was observed": {
			known, `{"metadata":{"generation":2},"spec":{"replicas":0},"status":{"observed":"3","total":0}}`,
			dependency.Status{Rollout: done}, Progress{Observed: true, Caveat: "it has no replicas now"},
		},
		"idle, but not observed": {
			known, `{"metadata":{"generation":2},"spec":{"replicas":0},"status":{"observed":1,"total":0}}`, dependency.Status{Rollout: unobserved},
			Progress{Caveat: "it has no replicas now"},
		},
		"pods are left": {
			known, `{"metadata":{"generation":2},"spec":{"replicas":0},"status":{"observed":2,"total":1}}`,
			dependency.Status{Rollout: running2("1 old pod is pending termination")}, Progress{Observed: true, Outdated: 1, Pods: 1, Caveat: "it has no replicas now"},
		},
		"paused, some are new": {
			known, `{"spec":{"replicas":3,"paused":true},"status":{"observed":0,"total":3,"updated":1,"ready":3}}`,
			dependency.Status{Rollout: held("Paused", "1 of 3 pods is up to date, and the workload is paused"), Replicas: 3, Paused: true}, Progress{Observed: true, Outdated: 2, Pods: 3},
		},
		"waiting": {
			known, `{"spec":{"replicas":3},"status":{"observed":0,"total":3,"updated":1,"ready":3,"conditions":[{"type":"Other"},{"type":"Waiting","status":"True","reason":"Window"}]}}`,
			dependency.Status{Rollout: held("Window", "1 of 3 pods is up to date, and its condition Waiting is True (Window)"), Replicas: 3},
			Progress{Observed: true, Outdated: 2, Pods: 3, Caveat: "its condition Waiting is True (Window)"},
		},
		"a partition": {
			known, `{"spec":{"replicas":3,"partition":"50%"},"status":{"observed":0,"total":3,"updated":1,"ready":3}}`,
			dependency.Status{Rollout: held("Partition", "1 of 3 pods is up to date, and pods below the partition (2) are not updated"), Replicas: 3},
			Progress{Observed: true, Outdated: 2, Pods: 3, Caveat: "its partition is 2: as many pods are not replaced"},
		},
		"a partition of one": {
			known, `{"metadata":{"generation":12},"spec":{"replicas":3,"partition":1},"status":{"observed":"12","total":3,"updated":1,"ready":3}}`,
			dependency.Status{Rollout: running2("1 of 2 pods is up to date, and pods below the partition (1) are not updated"), Replicas: 3},
			Progress{Observed: true, Outdated: 2, Pods: 3, Caveat: "its partition is 1: as many pods are not replaced"},
		},
		"a partition of none": {
			known, `{"spec":{"replicas":3,"partition":0},"status":{"observed":0,"total":3,"updated":2,"ready":3}}`,
			dependency.Status{Rollout: running2("2 of 3 pods are up to date"), Replicas: 3}, Progress{Observed: true, Outdated: 1, Pods: 3},
		},
		"an odd partition": {
			known, `{"spec":{"replicas":3,"partition":"half"},"status":{"observed":0,"total":3,"updated":1,"ready":3}}`,
			dependency.Status{Rollout: running2("1 of 3 pods is up to date"), Replicas: 3}, Progress{Observed: true, Outdated: 2, Pods: 3},
		},
		"a partition of more than all": {
			known, `{"spec":{"replicas":3,"partition":99999999999},"status":{"observed":0,"total":3,"updated":0,"ready":3}}`,
			dependency.Status{Rollout: held("Partition", "0 of 3 pods are up to date, and pods below the partition (3) are not updated"), Replicas: 3},
			Progress{Observed: true, Outdated: 3, Pods: 3, Caveat: "its partition is 3: as many pods are not replaced"},
		},
		"odd numbers": {
			known, `{"spec":{"replicas":-5,"partition":-1},"status":{"observed":0,"total":"3","updated":1.5,"ready":99999999999}}`,
			dependency.Status{Rollout: done}, Progress{Observed: true, Caveat: "it has no replicas now"},
		},
		"more new ones than it should have, not all ready": {
			known, `{"spec":{"replicas":1},"status":{"observed":0,"total":2,"updated":2,"ready":1}}`,
			dependency.Status{Rollout: running2("1 of 2 pods is available"), Replicas: 1}, Progress{Observed: true, Pods: 2},
		},
		"conditions and values": {
			bare, `{"status":{"conditions":[{"type":"Ready","status":"True"}],"n":2,"b":false}}`, dependency.Status{Rollout: done, Replicas: 1}, Progress{Observed: true},
		},
		"another value": {
			bare, `{"status":{"conditions":[{"type":"Ready","status":"True"}],"n":"3","b":false}}`,
			dependency.Status{Rollout: running2("it does not report that .status.n is 2"), Replicas: 1}, Progress{Observed: true},
		},
		"the first condition of a type counts": {
			bare, `{"status":{"conditions":[{"type":"Ready","status":"False"},{"type":"Ready","status":"True"}],"n":2}}`,
			dependency.Status{Rollout: running2("it does not report that its condition Ready is True"), Replicas: 1}, Progress{Observed: true},
		},
		"all is not counted": {
			uncounted, `{"spec":{"replicas":2},"status":{"updated":1}}`,
			dependency.Status{Rollout: running2("1 of 2 pods is up to date"), Replicas: 2}, Progress{Observed: true, Outdated: 1, Pods: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := mustNew(t, tt.d)
			o, read := decode(t, k, []byte(tt.object))
			if diff := cmp.Diff(tt.want, read.Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.progress, k.Progress(o)); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
		})
	}
}
