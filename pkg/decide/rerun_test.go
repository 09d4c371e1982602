// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/ingest/ingesttest"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// rerunWorld is a cluster with a CronJob report and a Job seed, which read the ConfigMap config.
type rerunWorld struct {
	*ingesttest.Cluster

	t        *testing.T
	now      time.Time
	defaults policy.Defaults
}

func (x *rerunWorld) Now() time.Time                  { return x.now }
func (x *rerunWorld) Since(t time.Time) time.Duration { return x.now.Sub(t) }

func newRerunWorld(t *testing.T, annotations map[string]string) *rerunWorld {
	t.Helper()
	x := &rerunWorld{t: t, now: epoch, defaults: policy.Defaults{Mode: policy.Off, Settle: time.Second, MinInterval: 10 * time.Second}}
	x.Cluster = ingesttest.New(t, clock.PassiveClock(x))
	x.Set(ingesttest.ConfigMap("config", "a", "1", "b", "1"))
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Annotations: maps.Clone(annotations)}
	}
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Env: []corev1.EnvVar{{
		Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}, Key: "a"}},
	}}}}}}
	x.Set(&batchv1.CronJob{ObjectMeta: meta("report"), Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}}})
	x.Set(&batchv1.Job{ObjectMeta: meta("seed"), Spec: batchv1.JobSpec{Template: template}})
	x.restart()
	return x
}

func (x *rerunWorld) restart() {
	x.t.Helper()
	index := ingest.NewIndex(x)
	index.SetDefaults(x.defaults)
	x.Start(index, ingest.Scope{Kinds: kind.Table(nil).WithReruns()}, 0)
	x.List()
}

func (x *rerunWorld) cronJob(change func(*batchv1.CronJob)) {
	o := x.Stored(&batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "report"}}).DeepCopyObject().(*batchv1.CronJob)
	change(o)
	x.Set(o)
}

func (x *rerunWorld) job(change func(*batchv1.Job)) {
	o := x.Stored(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "seed"}}).DeepCopyObject().(*batchv1.Job)
	change(o)
	x.Set(o)
}

func (x *rerunWorld) change(pairs ...string) { x.Set(ingesttest.ConfigMap("config", pairs...)) }

var rerunKeys = map[string]dependency.WorkloadKey{
	"cronjob": {Kind: kind.CronJob, Namespace: namespace, Name: "report"},
	"job":     {Kind: kind.Job, Namespace: namespace, Name: "seed"},
}

func (x *rerunWorld) evaluate(which string) (e *decide.Evaluation) {
	x.t.Helper()
	x.Read(func(known decide.Evaluator) { e = known.Evaluate(known.Graph.Workload(rerunKeys[which])) })
	return e
}

func (x *rerunWorld) decide(which string) decide.Decision {
	x.t.Helper()
	return x.evaluate(which).Decide(x.now)
}

// act carries out what is only a patch, and returns the decision.
func (x *rerunWorld) act(which string) decide.Decision {
	x.t.Helper()
	d, e := x.decide(which), x.evaluate(which)
	var data []byte
	var err error
	switch d.Action {
	case decide.WriteRecord:
		data, err = record.Patch(e.Workload, e.Present())
	case decide.Forget:
		data, err = record.ForgetPatch(e.Workload)
	case decide.RollOut:
		last := record.NewAutomaticReload(record.LastReloadOf(e.Workload), x.now, e.Policy.MinInterval, d.Trigger)
		data, err = e.Policy.RestartPatch(e.Workload, &record.Restart{Present: e.Present(), Last: last, Changed: e.Changed(&d)})
	default:
		return d
	}
	if err != nil {
		x.t.Fatal(err)
	}
	var patch struct {
		Metadata metav1.ObjectMeta
		Spec     map[string]any
	}
	if err := json.Unmarshal(data, &patch); err != nil || patch.Spec != nil || patch.Metadata.ResourceVersion != e.Workload.ResourceVersion {
		x.t.Fatalf("patch = %s (%v): must be bound to a version, and change annotations only", data, err)
	}
	if which == "cronjob" {
		x.cronJob(func(o *batchv1.CronJob) { apply(x.t, o, data) })
	} else {
		x.job(func(o *batchv1.Job) { apply(x.t, o, data) })
	}
	return d
}

// adopted records the content of both.
func adoptedRuns(t *testing.T, annotations map[string]string) *rerunWorld {
	t.Helper()
	x := newRerunWorld(t, annotations)
	for which := range rerunKeys {
		for _, want := range []decide.Action{decide.WriteRecord, decide.None} {
			if d := x.act(which); d.State != decide.InSync || d.Action != want {
				t.Fatalf("%s: decision = %+v, want action %q", which, d, want)
			}
		}
	}
	x.now = x.now.Add(time.Minute)
	return x
}

const config = "ConfigMap/config"

// What opts a CronJob or a Job in: its own annotations of Reloader, and nothing else.
func TestDecide_RunsAgainOnlyIfTheWorkloadAsks(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations, template, namespace map[string]string
		defaults                         policy.Defaults
		want                             bool
	}{
		"nothing":                          {},
		"auto":                             {annotations: annotations{reloaderAuto: "true"}, want: true},
		"auto for ConfigMaps":              {annotations: annotations{configMapAuto: "true"}, want: true},
		"a list":                           {annotations: annotations{configMapList: "config"}, want: true},
		"on the pod template":              {template: annotations{reloaderAuto: "true"}, want: true},
		"auto for Secrets":                 {annotations: annotations{secretAuto: "true"}},
		"auto, turned off":                 {annotations: annotations{reloaderAuto: "false"}},
		"a search without a match":         {annotations: annotations{reloaderSearch: "true"}},
		"turned off by configdep":          {annotations: annotations{reloaderAuto: "true", policy.ReloadAnnotation: "off"}},
		"excluded":                         {annotations: annotations{reloaderAuto: "true", policy.ExcludeAnnotation: "configmap/config"}},
		"excluded by the namespace":        {annotations: annotations{reloaderAuto: "true"}, namespace: annotations{policy.ExcludeAnnotation: "configmap/config"}},
		"by configdep":                     {annotations: annotations{policy.ReloadAnnotation: "auto"}},
		"by the namespace":                 {namespace: annotations{policy.ReloadAnnotation: "auto"}},
		"by the namespace, and off itself": {annotations: annotations{reloaderAuto: "false"}, namespace: annotations{policy.ReloadAnnotation: "auto"}},
		"for Secrets, with a namespace":    {annotations: annotations{secretAuto: "true"}, namespace: annotations{policy.ReloadAnnotation: "auto"}},
		"for Secrets, and by configdep":    {annotations: annotations{secretAuto: "true", policy.ReloadAnnotation: "auto"}},
		"for Secrets, and named by a namespace": {
			annotations: annotations{secretAuto: "true"}, namespace: annotations{policy.SourcesAnnotation: "configmap/config"},
		},
		"by the default":                 {defaults: policy.Defaults{Mode: policy.Auto}},
		"by --auto-reload-all":           {defaults: policy.Defaults{Mode: policy.Auto, AutoReloadAll: true}},
		"another dialect":                {annotations: annotations{"wave.pusher.com/update-on-config-change": "true"}},
		"auto, beside --auto-reload-all": {annotations: annotations{reloaderAuto: "true"}, defaults: policy.Defaults{Mode: policy.Auto, AutoReloadAll: true}, want: true},
		"without the dialect":            {annotations: annotations{reloaderAuto: "true"}, defaults: policy.Defaults{Dialects: native(t)}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRerunWorld(t, tt.annotations)
			x.defaults = tt.defaults
			if x.defaults.Mode == "" {
				x.defaults.Mode = policy.Off
			}
			x.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Annotations: tt.namespace}})
			x.cronJob(func(o *batchv1.CronJob) { o.Spec.JobTemplate.Spec.Template.Annotations = tt.template })
			x.job(func(o *batchv1.Job) { o.Spec.Template.Annotations = tt.template })
			x.restart()
			for which := range rerunKeys {
				x.act(which)
			}
			x.change("a", "2")
			x.now = x.now.Add(time.Hour)
			for which := range rerunKeys {
				want := decide.None
				if tt.want {
					want = decide.RollOut
				}
				if d := x.decide(which); d.Action != want {
					t.Errorf("%s: decision = %+v, want %v", which, d, want)
				}
				if e := x.evaluate(which); tt.want && (e.Policy.RestartsBy(e.Workload) != record.Rerun || !e.Policy.Reruns) {
					t.Errorf("%s is restarted by %s", which, e.Policy.RestartsBy(e.Workload).Name())
				}
			}
		})
	}
}

func native(t *testing.T) policy.Dialects {
	t.Helper()
	d, err := policy.NewDialects(nil, policy.ReloaderAnnotations{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// rerunStep is a change, with what is then decided for both workloads.
type rerunStep struct {
	do           func(*rerunWorld)
	cronJob, job outcome
}

// Each step changes something, and then both workloads are decided on.
func TestDecide_Reruns(t *testing.T) {
	replacing := outcome{decide.RollingOut, "Replacing", decide.Continue, config}
	again := func(x *rerunWorld) { x.now = x.now.Add(time.Hour) }
	content := func(value string) func(*rerunWorld) {
		return func(x *rerunWorld) { x.change("a", value); again(x) }
	}
	suspend := func(suspended bool) func(*rerunWorld) {
		return func(x *rerunWorld) {
			x.cronJob(func(o *batchv1.CronJob) { o.Spec.Suspend = &suspended })
			x.job(func(o *batchv1.Job) { o.Spec.Suspend = &suspended })
		}
	}
	out := func(x *rerunWorld) {
		x.cronJob(func(o *batchv1.CronJob) { delete(o.Annotations, reloaderAuto) })
		x.job(func(o *batchv1.Job) { delete(o.Annotations, reloaderAuto) })
	}
	both := func(do func(*rerunWorld), o outcome) rerunStep { return rerunStep{do, o, o} }
	due := rollOut(config)
	suspended := func(a decide.Action, trigger string) outcome {
		return outcome{State: decide.InSync, Reason: "Suspended", Action: a, Trigger: trigger}
	}
	for name, steps := range map[string][]rerunStep{
		"once for each change": {
			both(func(x *rerunWorld) { x.change("a", "2") }, outcome{decide.Settling, "SourceChanged", decide.None, config}),
			both(again, due),
			{again, outcome{decide.InSync, "ContentApplied", decide.None, config}, replacing},
			both((*rerunWorld).restart, outcome{decide.InSync, "ContentApplied", decide.None, config}).withJob(replacing),
			both(content("3"), due),
		},
		"another key": {both(func(x *rerunWorld) { x.change("a", "1", "b", "2"); again(x) }, nothing)},
		"a change while no server runs": {
			both(func(x *rerunWorld) { x.change("a", "2"); again(x); x.restart() }, due),
		},
		"the minimum interval": {
			both(content("2"), due),
			both(func(x *rerunWorld) { x.change("a", "3"); x.now = x.now.Add(2 * time.Second) }, outcome{decide.Pending, "MinInterval", decide.None, config}),
		},
		"suspended": {
			both(suspend(true), suspended(decide.None, "")),
			both(content("2"), suspended(decide.WriteRecord, "")),
			both(again, suspended(decide.None, "")),
			both(suspend(false), nothing),
			both(content("3"), due),
		},
		"suspended after a change": {
			both(func(x *rerunWorld) { content("2")(x); suspend(true)(x) }, suspended(decide.WriteRecord, "")),
			both(suspend(false), nothing),
		},
		"suspended while it is replaced": {
			both(content("2"), due),
			{suspend(true), suspended(decide.None, config), suspended(decide.WriteRecord, config)},
			both(again, suspended(decide.None, config)),
		},
		"opted out while it is replaced": {
			both(content("2"), due),
			{
				out, outcome{State: decide.InSync, Reason: "NextRunReadsContent", Action: decide.Forget, Trigger: config},
				outcome{State: decide.InSync, Reason: "NoPods", Action: decide.Forget, Trigger: config},
			},
			{
				again, outcome{State: decide.InSync, Reason: "NextRunReadsContent", Trigger: config},
				outcome{State: decide.InSync, Reason: "NoPods", Trigger: config},
			},
		},
		"a source is missing": {
			both(func(x *rerunWorld) { x.Delete(ingesttest.ConfigMap("config")); again(x) }, outcome{State: decide.Blocked, Reason: "SourceMissing"}),
			both(func(x *rerunWorld) { x.change("a", "1"); again(x) }, nothing),
		},
		"another template of the CronJob is no change": {
			{func(x *rerunWorld) {
				x.Set(ingesttest.ConfigMap("more", "a", "1"))
				x.cronJob(func(o *batchv1.CronJob) {
					o.Spec.JobTemplate.Spec.Template.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "more"}}}}
				})
				again(x)
			}, recording, nothing},
		},
		"content changes with the template of the CronJob": {
			{func(x *rerunWorld) {
				x.change("a", "2")
				x.cronJob(func(o *batchv1.CronJob) { o.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image = "new" })
				again(x)
			}, due, due},
		},
		"an active run of a CronJob that forbids two": {
			{func(x *rerunWorld) {
				x.cronJob(func(o *batchv1.CronJob) {
					o.Spec.ConcurrencyPolicy, o.Status.Active = batchv1.ForbidConcurrent, []corev1.ObjectReference{{Name: "run"}}
				})
				content("2")(x)
			}, outcome{decide.Pending, "RunActive", decide.None, config}, due},
			{func(x *rerunWorld) { x.cronJob(func(o *batchv1.CronJob) { o.Status.Active = nil }) }, due, replacing},
		},
		"an active run of a CronJob whose content needs an approval": {
			{func(x *rerunWorld) {
				x.cronJob(func(o *batchv1.CronJob) {
					o.Annotations[policy.ApprovalAnnotation] = "required"
					o.Spec.ConcurrencyPolicy, o.Status.Active = batchv1.ForbidConcurrent, []corev1.ObjectReference{{Name: "run"}}
				})
				content("2")(x)
			}, outcome{decide.Pending, "Approval", decide.None, config}, due},
		},
		"an active run of a CronJob that replaces runs": {
			{func(x *rerunWorld) {
				x.cronJob(func(o *batchv1.CronJob) {
					o.Spec.ConcurrencyPolicy, o.Status.Active = batchv1.ReplaceConcurrent, []corev1.ObjectReference{{Name: "run"}}
				})
				content("2")(x)
			}, outcome{decide.Pending, "RunActive", decide.None, config}, due},
		},
		"an active run of a CronJob that allows more": {
			{func(x *rerunWorld) {
				x.cronJob(func(o *batchv1.CronJob) {
					o.Spec.ConcurrencyPolicy, o.Status.Active = batchv1.AllowConcurrent, []corev1.ObjectReference{{Name: "run"}}
				})
				content("2")(x)
			}, due, due},
		},
		"an owner": {
			{func(x *rerunWorld) {
				owners := []metav1.OwnerReference{{APIVersion: "argoproj.io/v1alpha1", Kind: "Workflow", Name: "w", UID: "w"}}
				x.cronJob(func(o *batchv1.CronJob) { o.OwnerReferences = owners })
				x.job(func(o *batchv1.Job) { o.OwnerReferences = owners })
				content("2")(x)
			}, due, outcome{State: decide.InSync, Reason: "NoPods"}},
		},
		"a Job that has finished": {
			{func(x *rerunWorld) {
				x.job(func(o *batchv1.Job) {
					o.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
				})
				content("2")(x)
			}, due, due},
		},
		"a Job that is being deleted": {
			{func(x *rerunWorld) {
				x.job(func(o *batchv1.Job) { o.DeletionTimestamp = new(metav1.NewTime(x.now)) })
				content("2")(x)
			}, due, outcome{State: decide.InSync, Reason: "Terminating"}},
		},
		"an invalid annotation": {
			both(func(x *rerunWorld) {
				x.cronJob(func(o *batchv1.CronJob) { o.Annotations[configMapList] = "(" })
				x.job(func(o *batchv1.Job) { o.Annotations[configMapList] = "(" })
			}, outcome{State: decide.Blocked, Reason: "InvalidAnnotation"}),
		},
		"an invalid annotation, suspended": {
			both(func(x *rerunWorld) {
				suspend(true)(x)
				x.cronJob(func(o *batchv1.CronJob) { o.Annotations[configMapList] = "(" })
				x.job(func(o *batchv1.Job) { o.Annotations[configMapList] = "(" })
			}, outcome{State: decide.Blocked, Reason: "InvalidAnnotation"}),
		},
		"a strategy that is not possible": {
			both(func(x *rerunWorld) {
				x.cronJob(func(o *batchv1.CronJob) { o.Annotations[policy.StrategyAnnotation] = "recreate" })
				x.job(func(o *batchv1.Job) { o.Annotations[policy.StrategyAnnotation] = "env-var" })
			}, outcome{State: decide.Blocked, Reason: "InvalidAnnotation"}),
		},
		"the annotation of another strategy says nothing of a CronJob": {
			{func(x *rerunWorld) {
				x.cronJob(func(o *batchv1.CronJob) { o.Annotations[record.RecreatingAnnotation] = "none" })
			}, nothing, nothing},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := adoptedRuns(t, annotations{reloaderAuto: "true"})
			for i, s := range steps {
				s.do(x)
				for which, want := range map[string]outcome{"cronjob": s.cronJob, "job": s.job} {
					if which == "cronjob" && want.Reason == "ContentApplied" { // without a pod
						want.Reason = decide.ReasonNextRunReadsContent
					}
					if d := x.act(which); outcomeOf(d) != want {
						t.Errorf("step %d: %s: decision = %+v, want %+v", i, which, d, want)
					}
				}
			}
		})
	}
}

func (s rerunStep) withJob(o outcome) rerunStep {
	s.job = o
	return s
}

func TestDecide_ObservedRuns(t *testing.T) {
	x := adoptedRuns(t, annotations{reloaderAuto: "true"})
	x.change("a", "2")
	x.now = x.now.Add(time.Hour)
	x.defaults.Observe = true
	x.Index().SetDefaults(x.defaults)
	for which := range rerunKeys {
		if d := x.decide(which); d.Action != decide.Observe || d.Reason != decide.ReasonObserved {
			t.Errorf("%s: decision = %+v, want Observe", which, d)
		}
	}
}

// The names are valid, and differ for each object and each record.
func TestRunName(t *testing.T) {
	w := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Name: "report"}, UID: "u", Marks: dependency.Marks{Hash: "v1.k.a", LastReload: "1"}}
	present := record.Record{Hash: "v1.k.b"}
	name := record.RunName(w, present)
	if again := record.RunName(w, present); name != again || !strings.HasPrefix(name, "report-") {
		t.Errorf("names = %s, %s", name, again)
	}
	for what, change := range map[string]func(*dependency.Workload, *record.Record){
		"another CronJob":      func(w *dependency.Workload, _ *record.Record) { w.UID = "v" },
		"another record":       func(w *dependency.Workload, _ *record.Record) { w.Marks.Hash = "v1.k.c" },
		"other sources":        func(w *dependency.Workload, _ *record.Record) { w.Marks.Sources = "{}" },
		"a later run":          func(w *dependency.Workload, _ *record.Record) { w.Marks.LastReload = "2" },
		"another content":      func(_ *dependency.Workload, r *record.Record) { r.Hash = "v1.k.c" },
		"nothing was recorded": func(w *dependency.Workload, _ *record.Record) { w.Marks = dependency.Marks{} },
	} {
		other, r := *w, present
		change(&other, &r)
		if record.RunName(&other, r) == name {
			t.Errorf("%s: the same name", what)
		}
	}
	for _, long := range []string{strings.Repeat("a", 253), strings.Repeat("a", 51) + "." + strings.Repeat("b", 100), strings.Repeat("a.-", 80)} {
		w.Name = long
		for _, name := range []string{record.RunName(w, present), record.CopyName(long, "u")} {
			if len(name) > 63 || len(name) < 40 || strings.Contains(name, ".-c") || strings.Contains(name, "--") {
				t.Errorf("name of %d bytes: %s", len(name), name)
			}
		}
	}
}

// Only an annotation that fits the name of the Job makes it a copy.
func TestDecide_Copies(t *testing.T) {
	valid := record.Copy{Name: "init", UID: "u", Generation: 1}
	for name, tt := range map[string]struct {
		name, value string
		want        bool
	}{
		"a copy":           {record.CopyName("init", "u"), valid.Text(), true},
		"another name":     {"init-copy", valid.Text(), false},
		"no JSON":          {record.CopyName("init", "u"), "init", false},
		"nothing":          {record.CopyName("init", "u"), "", false},
		"without a UID":    {record.CopyName("init", ""), record.Copy{Name: "init"}.Text(), false},
		"a long one":       {record.CopyName("init", "u"), valid.Text() + strings.Repeat(" ", 1<<10), false},
		"of another name":  {record.CopyName("init", "u"), record.Copy{Name: "other", UID: "u"}.Text(), false},
		"of a former Job ": {record.CopyName("init", "u"), record.Copy{Name: "init", UID: "v"}.Text(), false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRerunWorld(t, nil)
			x.Set(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: tt.name, Annotations: annotations{record.CopyAnnotation: tt.value}}, Spec: batchv1.JobSpec{Suspend: new(true)}})
			var d decide.Decision
			x.Read(func(known decide.Evaluator) {
				w := known.Graph.Workload(dependency.WorkloadKey{Kind: kind.Job, Namespace: namespace, Name: tt.name})
				if d = known.Evaluate(w).Decide(x.now); policy.Dormant(w) == tt.want {
					t.Errorf("dormant = %v", !tt.want)
				}
			})
			want := outcome{State: decide.InSync, Reason: "NothingRead"}
			if tt.want {
				want = outcome{State: decide.RollingOut, Reason: "Replacing", Action: decide.Continue}
			}
			if outcomeOf(d) != want {
				t.Errorf("decision = %+v, want %+v", d, want)
			}
			x.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, DeletionTimestamp: new(metav1.NewTime(x.now))}})
			x.Read(func(known decide.Evaluator) {
				d = known.Evaluate(known.Graph.Workload(dependency.WorkloadKey{Kind: kind.Job, Namespace: namespace, Name: tt.name})).Decide(x.now)
			})
			if d.Action != decide.None {
				t.Errorf("in a namespace that is being deleted: decision = %+v", d)
			}
		})
	}
}

// What is not run again has the policy that it has without the flag.
func TestNewPolicy_OfWhatIsNotRunAgain(t *testing.T) {
	for name, tt := range map[string]struct{ workload, namespace annotations }{
		"nothing":                  {},
		"off":                      {workload: annotations{reloaderAuto: "true", policy.ReloadAnnotation: "off"}},
		"invalid":                  {workload: annotations{reloaderAuto: "true", policy.ReloadAnnotation: "x"}},
		"by configdep":             {workload: annotations{policy.ReloadAnnotation: "auto"}},
		"by the namespace":         {namespace: annotations{policy.ReloadAnnotation: "auto"}},
		"not selected":             {workload: annotations{reloaderAuto: "true"}, namespace: annotations{policy.DeclaredBySelector: ""}},
		"off, by Reloader":         {workload: annotations{reloaderAuto: "false"}, namespace: annotations{policy.ReloadAnnotation: "auto"}},
		"a strategy, not opted in": {workload: annotations{policy.StrategyAnnotation: "recreate", policy.ReloadAnnotation: "auto"}},
	} {
		for _, mode := range []policy.Mode{policy.Off, policy.Auto} {
			a := policy.Annotated{Workload: tt.workload, Namespace: tt.namespace, Traits: dependency.Traits{Recurring: true}}
			want := policy.NewPolicy(a, policy.Defaults{Mode: mode})
			a.Traits = dependency.Traits{Recurring: true, Rollable: true, Reruns: true}
			if diff := cmp.Diff(want, policy.NewPolicy(a, policy.Defaults{Mode: mode}), cmp.Comparer(func(a, b record.Strategy) bool { return a == b })); diff != "" {
				t.Errorf("%s, with the default %s (-without +with the flag):\n%s", name, mode, diff)
			}
		}
	}
}

// The settings of configdep apply to what is run again, and so do the limits.
func TestNewPolicy_SettingsOfRuns(t *testing.T) {
	of := func(workload annotations) policy.Policy {
		return policy.NewPolicy(policy.Annotated{
			Workload: workload, Namespace: annotations{policy.SettleAnnotation: "7s", policy.ReloadAnnotation: "off", policy.SourcesAnnotation: "secret/x"},
			Traits: dependency.Traits{Rollable: true, Reruns: true},
		}, policy.Defaults{Mode: policy.Auto})
	}
	p := of(annotations{reloaderAuto: "true", policy.MinIntervalAnnotation: "3m"})
	if !p.Reruns || p.Mode != policy.Auto || p.DeclaredBy != reloaderAuto || p.Settle != 7*time.Second || p.MinInterval != 3*time.Minute || len(p.Sources) > 0 || len(p.Problems) > 0 {
		t.Errorf("policy = %+v", p)
	}
	many := make([]string, 256)
	for i := range many {
		many[i] = strings.Repeat("a", 200) + fmt.Sprint(i)
	}
	list := strings.Join(many, ",")
	if p := of(annotations{configMapList: list, secretList: list}); !p.Reruns || !p.TooManyPatterns {
		t.Errorf("the names of both kinds are not limited: %v", p.Problems)
	}
	if p := of(annotations{reloaderAuto: "maybe"}); !p.Reruns || len(p.Problems) != 1 {
		t.Errorf("an invalid annotation: %+v", p)
	}
}

func TestRerun_Describes(t *testing.T) {
	d := record.Rerun.Describe("x")
	if record.Rerun.Name() != "rerun" || record.Rerun.NamesPods() || record.Rerun.MarksTemplate() || d.What == "" || d.Done == "" || d.Would == "" || d.Caveat != "x" {
		t.Errorf("%s: %+v", record.Rerun.Name(), d)
	}
	if _, err := record.ParseStrategy("rerun"); err == nil {
		t.Error("an annotation can ask for it")
	}
	of := record.Copy{Name: "init", UID: "u", Generation: 2, Suspend: new(true), Deleting: true}
	if got, is := record.ParseCopy(record.CopyName("init", "u"), of.Text()); !is || !cmp.Equal(got, of) {
		t.Errorf("copy = %+v, want %+v", got, of)
	}
	w := &dependency.Workload{WorkloadKey: dependency.WorkloadKey{Name: record.CopyName("init", "u")}, Annotations: annotations{record.CopyAnnotation: of.Text()}}
	for _, traits := range []dependency.Traits{{}, {Rollable: true}, {Rollable: true, Reruns: true, Recurring: true}} {
		if w.Traits = traits; record.UnderWay(w) != nil {
			t.Errorf("%+v: a copy of a Job, although it is none", traits)
		}
		if _, is := record.CopyOf(w); is {
			t.Errorf("%+v: a copy of a Job, although it is none", traits)
		}
	}
}
