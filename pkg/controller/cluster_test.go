package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/ingest"
	"github.com/configdep/configdep/pkg/policy"
)

const namespace = "shop"

// cluster is an API server, as far as the controller talks to it, an index that hears of
// every change at once, unless it is held back, and a controller. Time is that of the
// bubble of synctest that the test runs in.
type cluster struct {
	t          *testing.T
	start      time.Time
	client     *fake.Clientset
	index      *ingest.Index
	replay     *ingest.Replay
	controller *Controller
	log        lockedBuffer

	mu       sync.Mutex
	version  uint64
	objects  map[string]runtime.Object // those that the index reads
	held     bool
	news     []func() // what the index has yet to hear
	requests []request
	events   []string
	refuse   func(clienttesting.Action) error // of requests that change something
	owner    func()                           // is called a moment after each patch

	// clock is that of the processes, which may differ from that of the API server.
	clock clock.WithTicker
	// ahead is by how much the revision counter of a resource is ahead of that of the others.
	ahead map[string]uint64
	// defaults are those of the next process.
	defaults policy.Defaults

	resign func() // ends what lead began last

	hear func(reason string) // of events; set while nothing is under way
}

// request is one that changes something, with the time since the beginning.
type request struct {
	at   time.Duration
	verb string // patch, or evict
	name string
	kind string // of a patch: rollout, baseline, verified, mixed, recreate, recreated, abandoned
	err  string // the reason of the answer
}

func (r request) String() string {
	out := fmt.Sprintf("%v %s %s", r.at, r.kind, r.name)
	if r.err != "" {
		out += ": " + r.err
	}
	return out
}

// inCluster runs a test in a bubble, with a controller that is not running.
func inCluster(t *testing.T, test func(*cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{
			t: t, start: time.Now(), version: 100, client: fake.NewClientset(), objects: map[string]runtime.Object{}, clock: clock.RealClock{},
			defaults: policy.Defaults{Mode: policy.Off, Settle: time.Second, MinInterval: 10 * time.Second},
		}
		c.client.PrependReactor("patch", "*", c.patch)
		c.client.PrependReactor("create", "pods", c.evict)
		c.newProcess()
		test(c)
	})
}

// newProcess makes a controller and an index that has read nothing.
func (c *cluster) newProcess() {
	digester := dependency.NewDigester(make([]byte, dependency.KeySize))
	c.controller = New(Config{
		Client: c.client, Recorder: recorder{c}, Clock: c.clock, Workers: 2,
		Defaults: c.defaults,
		Digester: func() *dependency.Digester { return digester },
	})
	c.index = ingest.NewIndex(c.clock, c.controller)
	c.index.SetDefaults(c.defaults)
	c.replay = ingest.NewReplay(c.index, digester)
}

// synced lets the index read everything that there is.
func (c *cluster) synced() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held, c.news = false, nil
	var all []runtime.Object
	for _, o := range c.objects {
		all = append(all, o.DeepCopyObject())
	}
	if err := c.replay.List(strconv.FormatUint(c.version, 10), all...); err != nil {
		c.t.Fatal(err)
	}
}

// lead runs the controller until the function that it returns is called, which waits for
// the end of it.
func (c *cluster) lead() (stop func()) {
	ctx, cancel := context.WithCancel(c.context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.controller.Run(ctx, c.index)
	}()
	synctest.Wait()
	stop = func() {
		cancel()
		<-done
	}
	c.t.Cleanup(stop)
	c.resign = stop
	return stop
}

func (c *cluster) context() context.Context {
	return klog.NewContext(context.Background(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&c.log))))
}

// advance lets time pass, and waits until nothing is under way.
func (c *cluster) advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// set creates or changes an object, as its owner does.
func (c *cluster) set(o metav1.Object) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(o)
}

func (c *cluster) store(o metav1.Object) {
	c.t.Helper()
	c.version++
	o.SetNamespace(namespace)
	o.SetResourceVersion(strconv.FormatUint(c.version+c.ahead[resourceOf(o).Resource], 10))
	if o.GetUID() == "" {
		o.SetUID(types.UID("uid-" + o.GetName()))
	}
	if o.GetCreationTimestamp().Time.IsZero() {
		o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	object, resource := o.(runtime.Object), resourceOf(o)
	tracker := c.client.Tracker()
	if _, err := tracker.Get(resource, namespace, o.GetName()); err == nil {
		if err := tracker.Update(resource, object, namespace); err != nil {
			c.t.Error(err)
		}
	} else if err := tracker.Create(resource, object, namespace); err != nil {
		c.t.Error(err)
	}
	if !slices.Contains(indexed, resource.Resource) {
		return
	}
	c.objects[resource.Resource+"/"+o.GetName()] = object
	news := object.DeepCopyObject()
	c.tell(func() {
		if err := c.replay.Set(news); err != nil {
			c.t.Error(err)
		}
	})
}

// remove deletes an object.
func (c *cluster) remove(o metav1.Object) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	resource := resourceOf(o)
	if err := c.client.Tracker().Delete(resource, namespace, o.GetName()); err != nil {
		c.t.Error(err)
	}
	if !slices.Contains(indexed, resource.Resource) {
		return
	}
	c.version++
	delete(c.objects, resource.Resource+"/"+o.GetName())
	gone := o.(runtime.Object).DeepCopyObject()
	gone.(metav1.Object).SetResourceVersion(strconv.FormatUint(c.version+c.ahead[resource.Resource], 10))
	c.tell(func() {
		if err := c.replay.Delete(gone); err != nil {
			c.t.Error(err)
		}
	})
}

// tell passes news to the index, or keeps them.
func (c *cluster) tell(news func()) {
	if c.held {
		c.news = append(c.news, news)
		return
	}
	news()
}

// hold keeps news from the index.
func (c *cluster) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = true
}

// release lets the index hear all news.
func (c *cluster) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = false
	for _, news := range c.news {
		news()
	}
	c.news = nil
}

// indexed are the resources of this test that the index reads.
var indexed = []string{"deployments", "statefulsets", "daemonsets", "secrets", "configmaps"}

func resourceOf(o metav1.Object) schema.GroupVersionResource {
	switch o.(type) {
	case *appsv1.Deployment:
		return appsv1.SchemeGroupVersion.WithResource("deployments")
	case *appsv1.StatefulSet:
		return appsv1.SchemeGroupVersion.WithResource("statefulsets")
	case *appsv1.DaemonSet:
		return appsv1.SchemeGroupVersion.WithResource("daemonsets")
	case *appsv1.ReplicaSet:
		return appsv1.SchemeGroupVersion.WithResource("replicasets")
	case *appsv1.ControllerRevision:
		return appsv1.SchemeGroupVersion.WithResource("controllerrevisions")
	case *corev1.Pod:
		return corev1.SchemeGroupVersion.WithResource("pods")
	case *corev1.Secret:
		return corev1.SchemeGroupVersion.WithResource("secrets")
	case *corev1.ConfigMap:
		return corev1.SchemeGroupVersion.WithResource("configmaps")
	}
	panic(fmt.Sprintf("a %T", o))
}

// patch answers a patch as an API server does.
func (c *cluster) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	a := action.(clienttesting.PatchAction)
	r := request{at: time.Since(c.start), verb: "patch", name: a.GetName(), kind: kindOf(a.GetPatch())}
	o, err := c.answer(a)
	c.record(r, err)
	if err != nil {
		return true, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owner != nil {
		time.AfterFunc(ownerLatency, c.owner)
	}
	return true, o, nil
}

// ownerLatency is how long the owner takes to react.
const ownerLatency = 10 * time.Millisecond

// owning sets what the owner of the workloads does a moment after each patch; nil: nothing.
func (c *cluster) owning(react func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner = react
}

func (c *cluster) answer(a clienttesting.PatchAction) (runtime.Object, error) {
	if err := c.refused(a); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	live, err := c.client.Tracker().Get(a.GetResource(), namespace, a.GetName())
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(live)
	if err != nil {
		return nil, err
	}
	var object, patch map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(a.GetPatch(), &patch); err != nil {
		return nil, err
	}
	bound, has := patch["metadata"].(map[string]any), object["metadata"].(map[string]any)
	if bound["resourceVersion"] != has["resourceVersion"] || bound["uid"] != has["uid"] {
		return nil, apierrors.NewConflict(a.GetResource().GroupResource(), a.GetName(), fmt.Errorf("it is another version"))
	}
	raw, err = json.Marshal(merge(object, patch))
	if err != nil {
		return nil, err
	}
	patched := reflect.New(reflect.TypeOf(live).Elem()).Interface().(runtime.Object)
	if err := json.Unmarshal(raw, patched); err != nil {
		return nil, err
	}
	c.store(patched.(metav1.Object))
	return patched.DeepCopyObject(), nil
}

// merge is a JSON merge patch (RFC 7386).
func merge(object, patch map[string]any) map[string]any {
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(object, k)
		case map[string]any:
			inner, ok := object[k].(map[string]any)
			if !ok {
				inner = map[string]any{}
			}
			object[k] = merge(inner, v)
		default:
			object[k] = v
		}
	}
	return object
}

func kindOf(patch []byte) string {
	switch text := string(patch); {
	case strings.Contains(text, `"spec"`):
		return "rollout"
	case strings.Contains(text, policy.VerifiedAnnotation+`":"`):
		return "verified"
	case strings.Contains(text, `.mixed"`):
		return "mixed"
	case strings.Contains(text, policy.ConfigHashAnnotation+`":null`):
		return "abandoned"
	case strings.Contains(text, policy.RecreatingAnnotation+`":null`):
		return "recreated"
	case strings.Contains(text, policy.RecreatingAnnotation):
		return "recreate"
	default:
		return "baseline"
	}
}

// evict answers an eviction: the pod is ending.
func (c *cluster) evict(action clienttesting.Action) (bool, runtime.Object, error) {
	a := action.(clienttesting.CreateAction)
	if a.GetSubresource() != "eviction" {
		return false, nil, nil
	}
	eviction := a.GetObject().(*policyv1.Eviction)
	err := func() error {
		if err := c.refused(a); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		o, err := c.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), namespace, eviction.Name)
		if err != nil {
			return err
		}
		pod := o.DeepCopyObject().(*corev1.Pod)
		if uid := eviction.DeleteOptions.Preconditions.UID; *uid != pod.UID {
			return apierrors.NewConflict(corev1.Resource("pods"), pod.Name, fmt.Errorf("it is another pod"))
		}
		now := metav1.Now()
		pod.DeletionTimestamp, pod.Finalizers = &now, []string{"test"}
		c.store(pod)
		return nil
	}()
	c.record(request{at: time.Since(c.start), verb: "evict", name: eviction.Name, kind: "evict"}, err)
	return true, nil, err
}

// refusing lets requests be refused, or held up, by a function; nil: none are.
func (c *cluster) refusing(refuse func(clienttesting.Action) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = refuse
}

func (c *cluster) refused(a clienttesting.Action) error {
	c.mu.Lock()
	refuse := c.refuse
	c.mu.Unlock()
	if refuse == nil {
		return nil
	}
	return refuse(a)
}

func (c *cluster) record(r request, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		r.err = string(apierrors.ReasonForError(err))
	}
	c.requests = append(c.requests, r)
}

// took returns the requests since it was last called.
func (c *cluster) took() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, r := range c.requests {
		out = append(out, r.String())
	}
	c.requests = nil
	return out
}

// told returns the events since it was last called.
func (c *cluster) told() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.events
	c.events = nil
	return out
}

// recorder notes events.
type recorder struct{ c *cluster }

var _ record.EventRecorder = recorder{}

func (r recorder) Event(o runtime.Object, eventType, reason, message string) {
	ref := o.(*corev1.ObjectReference)
	if r.c.hear != nil {
		r.c.hear(reason)
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.events = append(r.c.events, fmt.Sprintf("%s %s %s/%s/%s: %s", eventType, reason, ref.Kind, ref.Namespace, ref.Name, message))
}

func (r recorder) Eventf(o runtime.Object, eventType, reason, format string, args ...any) {
	r.Event(o, eventType, reason, fmt.Sprintf(format, args...))
}

func (r recorder) AnnotatedEventf(o runtime.Object, _ map[string]string, eventType, reason, format string, args ...any) {
	r.Eventf(o, eventType, reason, format, args...)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func secret(name, value string) *corev1.Secret {
	s := &corev1.Secret{Data: map[string][]byte{"password": []byte(value)}}
	s.Name = name
	return s
}

// template reads all of a Secret.
func template(source string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name:    "app",
		EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: source}}}},
	}}}}
}

// deployment is one that has opted in and whose only pod is up to date.
func deployment(name, source string) *appsv1.Deployment {
	d := &appsv1.Deployment{}
	d.Name = name
	d.Annotations = map[string]string{policy.ReloadAnnotation: "auto"}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	d.Spec.Template = template(source)
	d.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	return d
}

// live returns an object as it is in the cluster.
func live[T metav1.Object](c *cluster, o T) T {
	c.t.Helper()
	got, err := c.client.Tracker().Get(resourceOf(o), namespace, o.GetName())
	if err != nil {
		c.t.Fatal(err)
	}
	return got.DeepCopyObject().(T)
}

// decision returns what a view of the Deployment web would show.
func (c *cluster) decision() (d policy.Decision) {
	c.t.Helper()
	key := dependency.WorkloadKey{Kind: dependency.Deployment, Namespace: namespace, Name: "web"}
	if !c.index.Read(func(g *dependency.Graph) {
		e := policy.Evaluate(g, c.controller.Digester(), g.Workload(key), c.controller.Defaults)
		d = e.Decide(policy.Observed{Now: c.clock.Now()})
	}) {
		c.t.Fatal("the index has not read everything")
	}
	return d
}

func (c *cluster) expectState(what string, state policy.State, reason string) {
	c.t.Helper()
	if d := c.decision(); d.State != state || d.Reason != reason {
		c.t.Fatalf("%s: %s/%s, want %s/%s", what, d.State, d.Reason, state, reason)
	}
}

// edit changes an object as it is in the cluster.
func edit[T metav1.Object](c *cluster, o T, f func(T)) {
	c.t.Helper()
	got := live(c, o)
	f(got)
	c.set(got)
}

// adopted is a cluster whose controller leads and has recorded what a Deployment web runs
// with, the Secret db.
func adopted(c *cluster) (stop func()) {
	c.t.Helper()
	c.synced()
	c.set(secret("db", "1"))
	c.set(deployment("web", "db"))
	stop = c.lead()
	c.advance(time.Minute)
	if got := c.took(); len(got) != 1 || !strings.HasSuffix(got[0], "baseline web") {
		c.t.Fatalf("when it was adopted: %v", got)
	}
	return stop
}
