// Package workload reads and patches live workloads, and finds their pods and revisions. It is for
// callers that are about to change a workload: the index may be a moment behind.
package workload

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/policy"
)

// Patch sends a JSON merge patch to a workload whose pods can be restarted and returns
// the metadata of the result. Its errors are those of the API server.
func Patch(ctx context.Context, client kubernetes.Interface, key dependency.WorkloadKey, data []byte, dryRun []string) (metav1.Object, error) {
	options := metav1.PatchOptions{FieldManager: policy.FieldManager, DryRun: dryRun}
	switch apps := client.AppsV1(); key.Kind {
	case dependency.Deployment:
		return apps.Deployments(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, data, options)
	case dependency.StatefulSet:
		return apps.StatefulSets(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, data, options)
	case dependency.DaemonSet:
		return apps.DaemonSets(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, data, options)
	default:
		return nil, fmt.Errorf("a %s cannot be restarted", key.Kind)
	}
}
