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
	"k8s.io/client-go/tools/cache"

	"github.com/configdep/configdep/pkg/dependency"
)

// stream is one resource that is read.
type stream struct {
	name      string
	lister    cache.ListerWatcher
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

// streams returns every resource that is read, with the client to read it by and the
// digester for content.
func streams(client kubernetes.Interface, digester *dependency.Digester) []*stream {
	all := metav1.NamespaceAll
	apps, batch, core := client.AppsV1(), client.BatchV1(), client.CoreV1()
	return []*stream{
		workloads(dependency.Deployment, "deployments", apps.Deployments(all), dependency.FromDeployment, metav1.ListOptions{}),
		workloads(dependency.StatefulSet, "statefulsets", apps.StatefulSets(all), dependency.FromStatefulSet, metav1.ListOptions{}),
		workloads(dependency.DaemonSet, "daemonsets", apps.DaemonSets(all), dependency.FromDaemonSet, metav1.ListOptions{}),
		workloads(dependency.CronJob, "cronjobs", batch.CronJobs(all), dependency.FromCronJob, metav1.ListOptions{}),
		workloads(dependency.Job, "jobs", batch.Jobs(all), dependency.FromJob, metav1.ListOptions{}),
		workloads(dependency.ReplicaSet, "replicasets", apps.ReplicaSets(all), dependency.FromReplicaSet,
			metav1.ListOptions{LabelSelector: withoutDeployment}),
		workloads(dependency.Pod, "pods", core.Pods(all), dependency.FromPod,
			metav1.ListOptions{LabelSelector: withoutController, FieldSelector: unfinished}),
		sources(dependency.ConfigMap, "configmaps", core.ConfigMaps(all), digester, dependency.FromConfigMap),
		sources(dependency.Secret, "secrets", core.Secrets(all), digester, dependency.FromSecret),
		{name: "namespaces", lister: newReducer(core.Namespaces(), metav1.ListOptions{}, func(m metav1.Object) *object {
			o := reduced(m)
			if m.GetName() != "" {
				annotations := dependency.OwnAnnotations(m.GetAnnotations())
				o.namespace = &annotations
			}
			return o
		})},
	}
}

// resources names them.
var resources = []string{
	"deployments", "statefulsets", "daemonsets", "cronjobs", "jobs", "replicasets", "pods", "configmaps", "secrets", "namespaces",
}

// resource is the part of a typed client that lists and watches.
type resource[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func workloads[T metav1.Object, L runtime.Object](
	kind dependency.WorkloadKind, name string, client resource[L], read func(T) *dependency.Workload, only metav1.ListOptions,
) *stream {
	reduce := func(m metav1.Object) *object {
		o := reduced(m)
		if t, ok := m.(T); ok && m.GetName() != "" {
			if o.workload = read(t); o.workload == nil {
				o.dropped = dependency.WorkloadKey{Kind: kind, Namespace: m.GetNamespace(), Name: m.GetName()}
			}
		}
		return o
	}
	return &stream{name: name, workloads: kind, lister: newReducer(client, only, reduce)}
}

func sources[T metav1.Object, L runtime.Object](
	kind dependency.SourceKind, name string, client resource[L],
	digester *dependency.Digester, read func(*dependency.Digester, T) *dependency.Source,
) *stream {
	reduce := func(m metav1.Object) *object {
		o := reduced(m)
		if t, ok := m.(T); ok && m.GetName() != "" {
			o.source = read(digester, t)
		}
		return o
	}
	return &stream{name: name, sources: kind, lister: newReducer(client, metav1.ListOptions{}, reduce)}
}

func joinSorted(set map[string]bool) string {
	names := make([]string, 0, len(set))
	for n := range set {
		names = append(names, n)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
