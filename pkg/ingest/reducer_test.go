package ingest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/dump"

	"github.com/configdep/configdep/pkg/dependency"
)

// cannedResource answers with one list and one watch, and notes what it was asked.
type cannedResource[L runtime.Object] struct {
	list    L
	watch   *watch.FakeWatcher
	err     error
	options []metav1.ListOptions
}

func (c *cannedResource[L]) List(_ context.Context, options metav1.ListOptions) (L, error) {
	c.options = append(c.options, options)
	return c.list, c.err
}

func (c *cannedResource[L]) Watch(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	c.options = append(c.options, options)
	if c.err != nil {
		return nil, c.err
	}
	return c.watch, nil
}

const password = "PASSWORD"

// secretWith returns a Secret that holds the password in every place where one can be.
func secretWith(password string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db", ResourceVersion: "7", UID: "u",
			Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: `{"stringData":{"password":"` + password + `"}}`},
			Labels:        map[string]string{"note": password},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: password, FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}},
		},
		Data:       map[string][]byte{"password": []byte(password)},
		StringData: map[string]string{"more": password},
	}
}

func secretStream(client resource[*corev1.SecretList]) *stream {
	return sources(dependency.Secret, "secrets", testDigester(), dependency.FromSecret, always(client))
}

func podStream(client resource[*corev1.PodList]) *stream {
	only := metav1.ListOptions{LabelSelector: "!x", FieldSelector: "status.phase!=Failed"}
	return workloads(dependency.Pod, "pods", dependency.FromPod, only, always(client))
}

// always returns one resource for whatever client.
func always[L runtime.Object](r resource[L]) func(kubernetes.Interface) resource[L] {
	return func(kubernetes.Interface) resource[L] { return r }
}

// lister returns what a reflector of a stream with a canned resource gets.
func lister(s *stream) *cache.ListWatch { return s.lister(nil).(paged).ListWatch }

func list(t *testing.T, s *stream, options metav1.ListOptions) *metav1.List {
	t.Helper()
	o, err := lister(s).ListWithContext(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return o.(*metav1.List)
}

// next sends one event through a watch of the stream.
func next(t *testing.T, s *stream, source *watch.FakeWatcher, event watch.Event) watch.Event {
	t.Helper()
	w, err := lister(s).WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	go source.Action(event.Type, event.Object)
	return receive(quiet(t), t, w.ResultChan())
}

// Behind the decoder there is no Secret: reflectors keep temporary stores, and print what
// they cannot handle.
func TestNothingOfASecretPasses(t *testing.T) {
	if !strings.Contains(dump.Pretty(secretWith(password)), password) {
		t.Fatal("the password is not found in the Secret: this test looks in the wrong place")
	}
	canned := &cannedResource[*corev1.SecretList]{
		list:  &corev1.SecretList{Items: []corev1.Secret{*secretWith(password)}},
		watch: watch.NewFake(),
	}
	s := secretStream(canned)
	passed := map[string]any{
		"list":  list(t, s, metav1.ListOptions{}),
		"added": next(t, s, canned.watch, watch.Event{Type: watch.Added, Object: secretWith(password)}),
	}
	for _, typ := range []watch.EventType{watch.Modified, watch.Deleted, watch.Bookmark} {
		canned.watch = watch.NewFake()
		passed[string(typ)] = next(t, s, canned.watch, watch.Event{Type: typ, Object: secretWith(password)})
	}
	for how, o := range passed {
		if held := dump.Pretty(o); strings.Contains(held, password) {
			t.Errorf("%s: what passes holds the password:\n%s", how, held)
		}
	}
	// The decoded object is garbage, but its values are overwritten at once.
	if left := canned.list.Items[0].Data["password"]; len(left) != len(password) || strings.Trim(string(left), "\x00") != "" {
		t.Errorf("the decoded list still holds %q", left)
	}
	// So that this test cannot pass because nothing came through:
	event := passed["added"].(watch.Event)
	if o := event.Object.(*object); event.Type != watch.Added || o.source == nil || o.source.Name != "db" || len(o.source.Keys) != 1 {
		t.Errorf("the event is %v with %+v", event.Type, o)
	}
}

// Reflectors page and watch by what the original list says.
func TestListsKeepTheirVersionAndContinueToken(t *testing.T) {
	canned := &cannedResource[*corev1.SecretList]{list: &corev1.SecretList{
		ListMeta: metav1.ListMeta{ResourceVersion: "42", Continue: "token", RemainingItemCount: new(int64(3))},
		Items:    []corev1.Secret{*secretWith("a"), *secretWith("b")},
	}}
	got := list(t, secretStream(canned), metav1.ListOptions{Limit: 2})
	if diff := cmp.Diff(metav1.ListMeta{ResourceVersion: "42", Continue: "token"}, got.ListMeta); diff != "" {
		t.Errorf("metadata of the list (-want +got):\n%s", diff)
	}
	for _, item := range got.Items {
		if o := item.Object.(*object); o.Namespace != "shop" || o.Name != "db" || o.ResourceVersion != "7" || !o.kept() {
			t.Errorf("item %+v", o)
		}
	}
	if len(got.Items) != 2 || canned.options[0].Limit != 2 {
		t.Errorf("%d items, asked with %+v", len(got.Items), canned.options)
	}
}

func TestErrorsPass(t *testing.T) {
	broken := errors.New("broken")
	s := secretStream(&cannedResource[*corev1.SecretList]{err: broken})
	lister := lister(s)
	if _, err := lister.ListWithContext(t.Context(), metav1.ListOptions{}); !errors.Is(err, broken) {
		t.Errorf("list: %v", err)
	}
	if _, err := lister.WatchWithContext(t.Context(), metav1.ListOptions{}); !errors.Is(err, broken) {
		t.Errorf("watch: %v", err)
	}
}

func TestWatchEvents(t *testing.T) {
	gone := &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}
	controlled := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-1", ResourceVersion: "8",
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: new(true)}},
	}}
	bookmark := func(annotations map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9", Annotations: annotations}}
	}
	reducedTo := func(f func(*object)) *object {
		o := &object{}
		f(o)
		return o
	}
	tests := map[string]struct {
		event watch.Event
		want  watch.Event
	}{
		"an error is passed on, so that the reflector lists anew": {
			watch.Event{Type: watch.Error, Object: gone},
			watch.Event{Type: watch.Error, Object: gone},
		},
		"a workload that is not shown keeps its name, so that it can be taken out": {
			watch.Event{Type: watch.Modified, Object: controlled},
			watch.Event{Type: watch.Modified, Object: reducedTo(func(o *object) {
				o.Namespace, o.Name, o.ResourceVersion = "shop", "web-1", "8"
				o.dropped = dependency.WorkloadKey{Kind: dependency.Pod, Namespace: "shop", Name: "web-1"}
			})},
		},
		"a bookmark is a version and no object": {
			watch.Event{Type: watch.Bookmark, Object: bookmark(map[string]string{"other": "x"})},
			watch.Event{Type: watch.Bookmark, Object: reducedTo(func(o *object) { o.ResourceVersion = "9" })},
		},
		"the bookmark after the initial events keeps its mark": {
			watch.Event{Type: watch.Bookmark, Object: bookmark(map[string]string{"other": "x", metav1.InitialEventsAnnotationKey: "true"})},
			watch.Event{Type: watch.Bookmark, Object: reducedTo(func(o *object) {
				o.ResourceVersion, o.Annotations = "9", map[string]string{metav1.InitialEventsAnnotationKey: "true"}
			})},
		},
		"an object without metadata is an error that tells its type alone": {
			watch.Event{Type: watch.Added, Object: &metav1.Status{Message: password}},
			watch.Event{Type: watch.Error, Object: &metav1.Status{
				Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError,
				Message: "watch event with an unexpected object of type *v1.Status",
			}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			canned := &cannedResource[*corev1.PodList]{watch: watch.NewFake()}
			got := next(t, podStream(canned), canned.watch, tt.event)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(object{})); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}

// A watch that is stopped stops that of the client, and ends.
func TestStoppingAWatch(t *testing.T) {
	canned := &cannedResource[*corev1.PodList]{watch: watch.NewFake()}
	w, err := lister(podStream(canned)).WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	for range w.ResultChan() {
	}
	if !canned.watch.IsStopped() {
		t.Error("the client still watches")
	}
}

// One that is stopped while an event is on its way ends as well, though nobody takes the
// event. TestMain looks for what it leaves behind.
func TestStoppingAWatchWithAnEventOnItsWay(t *testing.T) {
	canned := &cannedResource[*corev1.PodList]{watch: watch.NewFake()}
	w, err := lister(podStream(canned)).WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	canned.watch.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}}) // returns when it is taken
	w.Stop()
	await(t, "the client does not watch any more", canned.watch.IsStopped)
}

// The client ends a watch every few minutes; reflectors see that and begin another.
func TestAWatchThatTheClientEnds(t *testing.T) {
	canned := &cannedResource[*corev1.PodList]{watch: watch.NewFake()}
	w, err := lister(podStream(canned)).WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	canned.watch.Stop()
	if event, open := <-w.ResultChan(); open {
		t.Errorf("event %v", event)
	}
	w.Stop()
}

// What the API server leaves out costs us nothing. Lists are of the present; the rest of
// the options is the reflector's.
func TestSelectorsOfAStream(t *testing.T) {
	canned := &cannedResource[*corev1.PodList]{list: &corev1.PodList{}, watch: watch.NewFake()}
	lister := lister(podStream(canned))
	asked := metav1.ListOptions{Limit: 5, ResourceVersion: "3", AllowWatchBookmarks: true, SendInitialEvents: new(true)}
	if _, err := lister.ListWithContext(t.Context(), asked); err != nil {
		t.Fatal(err)
	}
	w, err := lister.WatchWithContext(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	watched := asked
	watched.LabelSelector, watched.FieldSelector = "!x", "status.phase!=Failed"
	listed := watched
	listed.ResourceVersion = ""
	if diff := cmp.Diff([]metav1.ListOptions{listed, watched}, canned.options); diff != "" {
		t.Errorf("asked of the client (-want +got):\n%s", diff)
	}
}

// Each stream reads its resource in all namespaces, and leaves out what controllers make.
func TestStreams(t *testing.T) {
	client := fake.NewClientset()
	all := streams(testDigester())
	var names []string
	got := map[string]string{}
	for _, s := range all {
		names = append(names, s.name)
		if _, err := s.lister(client).(paged).ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		action := client.Actions()[len(client.Actions())-1].(clienttesting.ListAction)
		r := action.GetListRestrictions()
		got[action.GetResource().Resource] = strings.Join([]string{action.GetNamespace(), r.Labels.String(), r.Fields.String()}, "|")
		if (s.sources != "") == (s.workloads != "") && s.name != "namespaces" {
			t.Errorf("%s has sources and workloads, or neither: %+v", s.name, s)
		}
		if _, found := got[s.name]; !found {
			t.Errorf("the stream %s reads %s", s.name, action.GetResource().Resource)
		}
	}
	want := map[string]string{
		"deployments": "||", "statefulsets": "||", "daemonsets": "||", "cronjobs": "||", "jobs": "||", "configmaps": "||", "secrets": "||",
		"namespaces":  "||",
		"replicasets": "|!pod-template-hash|",
		"pods":        "|!batch.kubernetes.io/controller-uid,!controller-revision-hash,!pod-template-hash|status.phase!=Failed,status.phase!=Succeeded",
	}
	for k := range got { // the order of the requirements is not ours
		parts := strings.Split(got[k], "|")
		for i, p := range parts {
			terms := strings.Split(p, ",")
			slices.Sort(terms)
			parts[i] = strings.Join(terms, ",")
		}
		got[k] = strings.Join(parts, "|")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is read, by namespace, labels and fields (-want +got):\n%s", diff)
	}
	// Whoever waits for the sync waits for these names.
	if diff := cmp.Diff(resources, names); diff != "" {
		t.Errorf("names of the streams (-resources +streams):\n%s", diff)
	}
}

// A run of a CronJob is not shown; a Job of somebody else is.
func TestJobsOfCronJobsAreNotShown(t *testing.T) {
	job := func(owner string) batchv1.Job {
		j := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "run"}}
		if owner != "" {
			j.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Controller: new(true)}}
		}
		return j
	}
	for owner, shown := range map[string]bool{"": true, "CronJob": false, "Workflow": true} {
		canned := &cannedResource[*batchv1.JobList]{list: &batchv1.JobList{Items: []batchv1.Job{job(owner)}}}
		s := workloads(dependency.Job, "jobs", dependency.FromJob, metav1.ListOptions{}, always[*batchv1.JobList](canned))
		if o := list(t, s, metav1.ListOptions{}).Items[0].Object.(*object); o.kept() != shown {
			t.Errorf("owner %q: shown: %v", owner, o.kept())
		}
	}
}

// Of a namespace only annotations of ours are read. One without any is kept all the same,
// so that it is noticed when they are taken away.
func TestNamespacesAreReducedToOurAnnotations(t *testing.T) {
	i := slices.IndexFunc(streams(testDigester()), func(s *stream) bool { return s.name == "namespaces" })
	reduce := streams(testDigester())[i].reduce
	for name, tt := range map[string]struct{ annotations, want map[string]string }{
		"ours among others": {
			map[string]string{"configdep.io/reload": "auto", "other": "x", "configdep.io.example.com/x": "y"},
			map[string]string{"configdep.io/reload": "auto"},
		},
		"others": {map[string]string{"other": "x"}, nil},
		"none":   {nil, nil},
	} {
		o := reduce(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", ResourceVersion: "5", Annotations: tt.annotations}})
		if o.namespace == nil || !o.kept() || o.Name != "shop" || o.ResourceVersion != "5" {
			t.Errorf("%s: reduced to %+v", name, o)
		} else if diff := cmp.Diff(tt.want, *o.namespace); diff != "" {
			t.Errorf("%s: annotations (-want +got):\n%s", name, diff)
		}
	}
}
