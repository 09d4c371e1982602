package ingest

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/configdep/configdep/pkg/dependency"
)

// stream is one resource that is read.
type stream struct {
	name      string
	reduce    func(metav1.Object) *object
	lister    func(kubernetes.Interface) cache.ListerWatcher
	workloads dependency.WorkloadKind // or
	sources   dependency.SourceKind   // or neither: namespaces
}

type name struct{ namespace, name string }

// names returns what the graph holds of the stream.
func (s *stream) names(g *dependency.Graph) map[name]struct{} {
	names := map[name]struct{}{}
	switch {
	case s.sources != "":
		g.EachSource(func(source *dependency.Source) {
			if source.Kind == s.sources {
				names[name{source.Namespace, source.Name}] = struct{}{}
			}
		})
	case s.workloads != "":
		g.EachWorkload(func(w *dependency.Workload) {
			if w.Kind == s.workloads {
				names[name{w.Namespace, w.Name}] = struct{}{}
			}
		})
	default:
		g.EachNamespace(func(n string) { names[name{"", n}] = struct{}{} })
	}
	return names
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

// streams returns every resource that is read, with the digester for content.
func streams(digester *dependency.Digester) []*stream {
	return []*stream{
		workloads(dependency.Deployment, "deployments", dependency.FromDeployment, metav1.ListOptions{},
			func(c kubernetes.Interface) resource[*appsv1.DeploymentList] { return c.AppsV1().Deployments(all) }),
		workloads(dependency.StatefulSet, "statefulsets", dependency.FromStatefulSet, metav1.ListOptions{},
			func(c kubernetes.Interface) resource[*appsv1.StatefulSetList] { return c.AppsV1().StatefulSets(all) }),
		workloads(dependency.DaemonSet, "daemonsets", dependency.FromDaemonSet, metav1.ListOptions{},
			func(c kubernetes.Interface) resource[*appsv1.DaemonSetList] { return c.AppsV1().DaemonSets(all) }),
		workloads(dependency.CronJob, "cronjobs", dependency.FromCronJob, metav1.ListOptions{},
			func(c kubernetes.Interface) resource[*batchv1.CronJobList] { return c.BatchV1().CronJobs(all) }),
		workloads(dependency.Job, "jobs", dependency.FromJob, metav1.ListOptions{},
			func(c kubernetes.Interface) resource[*batchv1.JobList] { return c.BatchV1().Jobs(all) }),
		workloads(dependency.ReplicaSet, "replicasets", dependency.FromReplicaSet, metav1.ListOptions{LabelSelector: withoutDeployment},
			func(c kubernetes.Interface) resource[*appsv1.ReplicaSetList] { return c.AppsV1().ReplicaSets(all) }),
		workloads(dependency.Pod, "pods", dependency.FromPod, metav1.ListOptions{LabelSelector: withoutController, FieldSelector: unfinished},
			func(c kubernetes.Interface) resource[*corev1.PodList] { return c.CoreV1().Pods(all) }),
		sources(dependency.ConfigMap, "configmaps", digester, dependency.FromConfigMap,
			func(c kubernetes.Interface) resource[*corev1.ConfigMapList] { return c.CoreV1().ConfigMaps(all) }),
		sources(dependency.Secret, "secrets", digester, dependency.FromSecret,
			func(c kubernetes.Interface) resource[*corev1.SecretList] { return c.CoreV1().Secrets(all) }),
		newStream(&stream{name: "namespaces"}, metav1.ListOptions{}, readNamespace,
			func(c kubernetes.Interface) resource[*corev1.NamespaceList] { return c.CoreV1().Namespaces() }),
	}
}

const all = metav1.NamespaceAll

// resources names them.
var resources = []string{
	"deployments", "statefulsets", "daemonsets", "cronjobs", "jobs", "replicasets", "pods", "configmaps", "secrets", "namespaces",
}

// resource is the part of a typed client that lists and watches.
type resource[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func newStream[T metav1.Object, L runtime.Object](
	s *stream, only metav1.ListOptions, read func(T, *object), client func(kubernetes.Interface) resource[L],
) *stream {
	s.reduce = func(m metav1.Object) *object {
		o := reduced(m)
		if t, ok := m.(T); ok && o.Name != "" { // a bookmark has no name
			read(t, o)
		}
		return o
	}
	s.lister = func(c kubernetes.Interface) cache.ListerWatcher { return newReducer(client(c), only, s.reduce) }
	return s
}

func workloads[T metav1.Object, L runtime.Object](
	kind dependency.WorkloadKind, name string, from func(T) *dependency.Workload, only metav1.ListOptions,
	client func(kubernetes.Interface) resource[L],
) *stream {
	return newStream(&stream{name: name, workloads: kind}, only, func(t T, o *object) {
		if o.workload = from(t); o.workload == nil {
			o.dropped = dependency.WorkloadKey{Kind: kind, Namespace: o.Namespace, Name: o.Name}
		}
	}, client)
}

func sources[T metav1.Object, L runtime.Object](
	kind dependency.SourceKind, name string, digester *dependency.Digester, from func(*dependency.Digester, T) *dependency.Source,
	client func(kubernetes.Interface) resource[L],
) *stream {
	s := newStream(&stream{name: name, sources: kind}, metav1.ListOptions{}, func(t T, o *object) {
		o.source = from(digester, t)
	}, client)
	typed := s.lister
	s.lister = func(c kubernetes.Interface) cache.ListerWatcher {
		if base := restClient(c); base != nil {
			if wire, err := wireLister(base, name, &sourceDecoder{kind, digester}); err == nil {
				return wire
			}
		}
		return typed(c)
	}
	return s
}

// restClient returns what a client for the core group sends requests by; nil: it is a fake.
func restClient(c kubernetes.Interface) *rest.RESTClient {
	if c == nil {
		return nil
	}
	base, _ := c.CoreV1().RESTClient().(*rest.RESTClient)
	return base
}

func readNamespace(n *corev1.Namespace, o *object) {
	annotations := dependency.OwnAnnotations(n.Annotations)
	o.namespace = &annotations
}

func joinSorted(set map[string]bool) string {
	names := make([]string, 0, len(set))
	for n := range set {
		names = append(names, n)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
