package policy

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

// The annotations by which a rollout is made and remembered.
const (
	// ConfigHashAnnotation, on the pod template or else on the workload, is the hash of
	// the content with which the pods were started.
	ConfigHashAnnotation = "configdep.io/config-hash"
	// ReloadedAtAnnotation, on the pod template, makes the template differ when the hash
	// does not: it is the time of a restart on request.
	ReloadedAtAnnotation = "configdep.io/reloaded-at"
	// LastReloadAnnotation, on the workload, tells of the last rollout (a LastReload).
	LastReloadAnnotation = "configdep.io/last-reload"
)

// FieldManager is the name under which workloads are patched. It must not begin with
// "kubectl": Flux takes the fields of such managers for drift and reverts them.
const FieldManager = "configdep"

// TriggerRequest is the trigger of a rollout that a user requested.
const TriggerRequest = "Request"

// LastReload tells of a rollout. Its JSON is the value of LastReloadAnnotation.
type LastReload struct {
	Time        metav1.Time `json:"time"`
	Trigger     string      `json:"trigger,omitempty"`
	RequestedBy string      `json:"requestedBy,omitempty"`
	Reason      string      `json:"reason,omitempty"`
}

// LastReloadOf returns what a workload remembers of its last rollout, or nil. A value
// that somebody else has spoilt is as good as none.
func LastReloadOf(w *dependency.Workload) *LastReload {
	raw, found := w.Annotations[LastReloadAnnotation]
	if !found {
		return nil
	}
	var last LastReload
	if json.Unmarshal([]byte(raw), &last) != nil || last.Time.IsZero() {
		return nil
	}
	return &last
}

// AppliedHash returns the hash of the content with which the pods of a workload were
// started, or "" when it is not known.
func AppliedHash(w *dependency.Workload) string {
	if hash := w.TemplateAnnotations[ConfigHashAnnotation]; hash != "" {
		return hash
	}
	return w.Annotations[ConfigHashAnnotation]
}

// RolloutPatch returns the JSON merge patch that restarts the pods of a workload and
// records with which content. It names our annotations alone, and is refused with a
// conflict when the object is no longer that of the given UID and version.
func RolloutPatch(uid, resourceVersion, configHash string, last LastReload) ([]byte, error) {
	record, err := json.Marshal(last)
	if err != nil {
		return nil, err
	}
	type annotations map[string]string
	type object map[string]any
	return json.Marshal(object{
		"metadata": object{
			"uid":             uid,
			"resourceVersion": resourceVersion,
			"annotations": annotations{
				ConfigHashAnnotation: configHash,
				LastReloadAnnotation: string(record),
			},
		},
		"spec": object{"template": object{"metadata": object{"annotations": annotations{
			ConfigHashAnnotation: configHash,
			// Milliseconds, so that each of two requests in one second restarts the pods.
			ReloadedAtAnnotation: last.Time.UTC().Format(time.RFC3339Nano),
		}}}},
	})
}
