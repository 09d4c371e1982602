package ingest

import (
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// stream is one resource that is read.
type stream struct {
	name      string
	api       string // the path of its group and version, such as /apis/apps/v1
	resource  string // such as deployments
	namespace string // to which it is limited; empty: it is not
	kind      string
	labels    string                  // and fields select what is read
	fields    string                  //
	workloads dependency.WorkloadKind // or
	sources   dependency.SourceKind   // or
	unread    string                  // the type of Secrets that are not read, or none of them: namespaces
	// reduce reduces an object, and decode one as it is encoded in protobuf, which it
	// overwrites where content is.
	reduce func(metav1.Object) *object
	decode func([]byte) (*object, error)
}

// namespaces reports whether it is that of namespaces, which are in none.
func (s *stream) namespaces() bool { return s.workloads == "" && s.sources == "" && s.unread == "" }

type name struct{ namespace, name string }

// names returns what the graph holds of the stream.
func (s *stream) names(g *dependency.Graph) map[name]struct{} {
	names := map[name]struct{}{}
	switch {
	case s.sources != "":
		g.EachSource(func(source *dependency.Source) {
			if source.Kind == s.sources && s.within(source.Namespace) {
				names[name{source.Namespace, source.Name}] = struct{}{}
			}
		})
	case s.unread != "":
		g.EachUnread(func(u *dependency.Unread) {
			if u.Type == s.unread && s.within(u.Namespace) {
				names[name{u.Namespace, u.Name}] = struct{}{}
			}
		})
	case s.workloads != "":
		g.EachWorkload(func(w *dependency.Workload) {
			if w.Kind == s.workloads && s.within(w.Namespace) {
				names[name{w.Namespace, w.Name}] = struct{}{}
			}
		})
	default:
		g.EachNamespace(func(n string) { names[name{"", n}] = struct{}{} })
	}
	return names
}

func (s *stream) within(namespace string) bool { return s.namespace == "" || s.namespace == namespace }

// in returns the stream of one namespace.
func (s *stream) in(namespace string) *stream {
	one := *s
	one.name, one.namespace = namespace+"/"+s.name, namespace
	return &one
}

// Labels that controllers put on what they make. A ReplicaSet or Pod that carries one is
// not shown, as its Deployment, StatefulSet, DaemonSet or Job is: the API server leaves
// them out, so that their churn, most of what happens in a cluster, costs us nothing.
const (
	withoutDeployment = "!" + appsv1.DefaultDeploymentUniqueLabelKey
	withoutController = withoutDeployment + ",!" + appsv1.ControllerRevisionHashLabelKey + ",!" + batchv1.ControllerUidLabel
	// unfinished leaves out pods that read nothing any more.
	unfinished = "status.phase!=" + string(corev1.PodSucceeded) + ",status.phase!=" + string(corev1.PodFailed)
)

// streams returns all that is read, with the digester for content. Namespaces themselves are read in
// either case: their annotations are defaults.
func (c Scope) streams(digester *dependency.Digester) (in []*stream) {
	for _, s := range c.resources(digester) {
		if len(c.Namespaces) == 0 || s.namespaces() {
			in = append(in, s)
			continue
		}
		for _, namespace := range c.Namespaces {
			in = append(in, s.in(namespace))
		}
	}
	return in
}

// resources returns what is read of each resource, in all namespaces.
func (c Scope) resources(digester *dependency.Digester) []*stream {
	replicaSets := workloads(dependency.ReplicaSet, "/apis/apps/v1/replicasets", dependency.FromReplicaSet)
	replicaSets.labels = withoutDeployment
	jobs := workloads(dependency.Job, "/apis/batch/v1/jobs", dependency.FromJob)
	pods := workloads(dependency.Pod, "/api/v1/pods", dependency.FromPod)
	pods.labels, pods.fields = withoutController, unfinished
	// What other tools make carries labels of their own: Argo Rollouts, Tekton, Spark.
	leaveControlled(replicaSets, dependency.FromReplicaSet)
	leaveControlled(jobs, dependency.FromJob)
	leaveControlled(pods, dependency.FromPod)
	all := []*stream{
		workloads(dependency.Deployment, "/apis/apps/v1/deployments", dependency.FromDeployment),
		workloads(dependency.StatefulSet, "/apis/apps/v1/statefulsets", dependency.FromStatefulSet),
		workloads(dependency.DaemonSet, "/apis/apps/v1/daemonsets", dependency.FromDaemonSet),
		workloads(dependency.CronJob, "/apis/batch/v1/cronjobs", dependency.FromCronJob),
		jobs,
		replicaSets,
		pods,
		sources(dependency.ConfigMap, "/api/v1/configmaps", digester, dependency.FromConfigMap),
	}
	all = append(all, c.secrets(digester)...)
	return append(all, newStream("Namespace", "/api/v1/namespaces", readNamespace))
}

// message is a pointer to an API object.
type message[T any] interface {
	*T
	metav1.Object
	Unmarshal([]byte) error
}

// newStream returns a stream of objects, of which read notes what remains.
func newStream[T any, P message[T]](kind, url string, read func(P, *object)) *stream {
	api, resource := path.Split(url)
	s := &stream{name: resource, api: path.Clean(api), resource: resource, kind: kind}
	s.reduce = func(m metav1.Object) *object {
		o := reduced(m)
		if p, ok := m.(P); ok && o.Name != "" { // a bookmark has no name
			read(p, o)
		}
		return o
	}
	s.decode = func(raw []byte) (*object, error) {
		p := P(new(T))
		if err := p.Unmarshal(raw); err != nil {
			return nil, err
		}
		return s.reduce(p), nil
	}
	return s
}

func workloads[T any, P message[T]](kind dependency.WorkloadKind, url string, from func(P) *dependency.Workload) *stream {
	s := newStream[T](string(kind), url, func(p P, o *object) {
		if o.workload = from(p); o.workload == nil {
			o.dropped = dependency.WorkloadKey{Kind: kind, Namespace: o.Namespace, Name: o.Name}
		}
	})
	s.workloads = kind
	return s
}

// leaveControlled has the metadata of objects decoded first, and no more of those that are not shown because they have a
// controller.
func leaveControlled[T any, P message[T]](s *stream, from func(P) *dependency.Workload) {
	whole := s.decode
	s.decode = func(raw []byte) (*object, error) {
		var m metav1.PartialObjectMetadata // its first field is that of all objects; others are passed over
		if err := m.Unmarshal(raw); err != nil {
			return nil, err
		}
		if len(m.OwnerReferences) > 0 {
			p := P(new(T))
			p.SetNamespace(m.Namespace)
			p.SetName(m.Name)
			p.SetResourceVersion(m.ResourceVersion)
			p.SetOwnerReferences(m.OwnerReferences)
			if from(p) == nil {
				return s.reduce(p), nil
			}
		}
		return whole(raw)
	}
}

func sources[T any, P message[T]](
	kind dependency.SourceKind, url string, digester *dependency.Digester, from func(*dependency.Digester, P) *dependency.Source,
) *stream {
	s := newStream[T](string(kind), url, func(p P, o *object) { o.source = from(digester, p) })
	s.sources, s.decode = kind, (&sourceDecoder{kind, digester}).decode
	return s
}

// readNamespace reads the defaults for the workloads of a namespace: its annotations, and a
// label that says the same as one of them (webhooks can be told to look for a label only).
func readNamespace(n *corev1.Namespace, o *object) {
	annotations := dependency.OwnAnnotations(n.Annotations)
	if mode, labelled := n.Labels[policy.ReloadAnnotation]; labelled {
		if _, annotated := annotations[policy.ReloadAnnotation]; !annotated {
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[policy.ReloadAnnotation] = mode
		}
	}
	o.namespace, o.terminating = &annotations, n.DeletionTimestamp != nil
}

func joinSorted(set map[string]bool) string {
	names := make([]string, 0, len(set))
	for n := range set {
		names = append(names, n)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
