// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Strategy is how workloads are restarted.
type Strategy int

// The strategies.
const (
	EnvVars     Strategy = iota // a variable in a container, by default
	Annotations                 // an annotation of the pod template
)

const lastReloadedFrom = "reloader.stakater.com/last-reloaded-from"

// patch returns a strategic merge patch that restarts a workload because of a source, of which it tells a container; nil: the
// container knows already.
func (s Strategy) patch(of *source, c *corev1.Container, now time.Time) ([]byte, error) {
	if s == Annotations { // each patch is another, because of the time
		from, err := json.Marshal(struct {
			Type          string   `json:"type"`
			Name          string   `json:"name"`
			Namespace     string   `json:"namespace"`
			Hash          string   `json:"hash"`
			ContainerRefs []string `json:"containerRefs"`
			ObservedAt    int64    `json:"observedAt"`
		}{of.name, of.GetName(), of.GetNamespace(), of.hash, []string{c.Name}, now.Unix()})
		if err != nil {
			return nil, err
		}
		return patchTemplate("metadata", "annotations", map[string]string{lastReloadedFrom: string(from)})
	}
	name := of.variable()
	for _, v := range c.Env {
		if v.Name == name && v.Value == of.hash {
			return nil, nil
		}
	}
	return patchTemplate("spec", "containers", []any{map[string]any{"name": c.Name, "env": []any{map[string]string{"name": name, "value": of.hash}}}})
}

func patchTemplate(part, field string, value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"spec": {"template": {%q: {%q: %s}}}}`, part, field, raw), nil
}
