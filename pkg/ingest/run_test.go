package ingest

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/configdep/configdep/pkg/dependency"
)

// notifier is a sink that passes on what the workloads look like after each call. It is
// read by the test while reflectors write.
type notifier struct{ views chan map[string]string }

func (n *notifier) send(g *dependency.Graph) {
	out := map[string]string{}
	g.EachWorkload(func(w *dependency.Workload) {
		hash := testDigester().ConfigHash(w.References, g.Sources(w.Namespace), nil)
		out[w.ViewName()] = hash
	})
	n.views <- out
}

func (n *notifier) Synced(g *dependency.Graph, _ uint64) { n.send(g) }

func (n *notifier) Changed(g *dependency.Graph, _ uint64, _ []dependency.WorkloadKey) { n.send(g) }

func (n *notifier) Progressed(uint64) {}

func runSecret(value string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Data:       map[string][]byte{"password": []byte(value)},
	}
}

func hashWith(t *testing.T, value string) string {
	t.Helper()
	d := testDigester()
	g := dependency.NewGraph()
	g.SetSource(dependency.FromSecret(d, runSecret(value)))
	return d.ConfigHash(dependency.FromDeployment(webDeployment()).References, g.Sources("shop"), nil)
}

func webDeployment() *appsv1.Deployment {
	o := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	o.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", EnvFrom: []corev1.EnvFromSource{
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}},
	}}}
	return o
}

// From a client to the sink: what is there at the start, a change, an end; and nothing
// goes on after the context is done, which TestMain checks.
func TestRunFollowsAClient(t *testing.T) {
	// The fake client knows no watch lists.
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, false)
	ctx, cancel := context.WithCancel(quiet(t))
	client := fake.NewClientset(webDeployment(), runSecret("one"))
	watched := make(chan struct{}) // the fake client loses what happens before it is watched
	client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		go func() { watched <- struct{}{} }()
		return true, w, err
	})
	sink := &notifier{make(chan map[string]string)}
	x := NewIndex(sink, Streams())
	var wg sync.WaitGroup
	wg.Go(func() { x.Run(ctx, client, testDigester()) })

	expect := func(what string, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, <-sink.views); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	expect("after the first sync", map[string]string{"deployment.web": hashWith(t, "one")})
	if err := x.Synced(); err != nil {
		t.Error(err)
	}
	for range Streams() {
		<-watched
	}
	if _, err := client.CoreV1().Secrets("shop").Update(ctx, runSecret("two"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("after a change of the Secret", map[string]string{"deployment.web": hashWith(t, "two")})
	if err := client.AppsV1().Deployments("shop").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("after the Deployment has gone", map[string]string{})
	cancel()
	wg.Wait()
}

// Reflectors ask for the initial state as a watch, and take its end from the annotation
// of a bookmark: the reduced objects must keep it, or the index never syncs.
func TestWatchListsEnd(t *testing.T) {
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, true)
	ctx, cancel := context.WithCancel(quiet(t))
	canned := &cannedResource[*corev1.SecretList]{watch: watch.NewFake()}
	s := secretStream(canned)
	sink := &notifier{make(chan map[string]string)}
	x := NewIndex(sink, []string{"secrets"})
	x.graph.SetWorkload(dependency.FromDeployment(webDeployment()))
	r := cache.NewReflectorWithOptions(s.lister, nil, &store{x, s}, cache.ReflectorOptions{TypeDescription: s.name})
	var wg sync.WaitGroup
	wg.Go(func() { r.RunWithContext(ctx) })

	versioned := func(o *corev1.Secret, version string) *corev1.Secret {
		o.ResourceVersion = version
		return o
	}
	canned.watch.Add(versioned(runSecret("one"), "5"))
	end := &corev1.Secret{}
	end.ResourceVersion, end.Annotations = "6", map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	canned.watch.Action(watch.Bookmark, end)
	want := map[string]string{"deployment.web": hashWith(t, "one")}
	if diff := cmp.Diff(want, <-sink.views); diff != "" {
		t.Errorf("after the initial events (-want +got):\n%s", diff)
	}
	canned.watch.Modify(versioned(runSecret("two"), "7"))
	want["deployment.web"] = hashWith(t, "two")
	if diff := cmp.Diff(want, <-sink.views); diff != "" {
		t.Errorf("after a change (-want +got):\n%s", diff)
	}
	cancel()
	wg.Wait()
	if asked := canned.options[0]; asked.SendInitialEvents == nil || !*asked.SendInitialEvents {
		t.Errorf("asked with %+v: this was no watch list", asked)
	}
}
