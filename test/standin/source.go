// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"crypto/sha1" //nolint:gosec // what Reloader writes
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A kind is a kind of sources, with the annotations that are about it.
type kind struct {
	name                   string // in what is written
	controller             string // the name of its controller, in events
	reload, auto, excluded string
}

var (
	configMaps = &kind{
		"CONFIGMAP", "reloader-configmaps", "configmap.reloader.stakater.com/reload", "configmap.reloader.stakater.com/auto",
		"configmaps.exclude.reloader.stakater.com/reload",
	}
	secrets = &kind{
		"SECRET", "reloader-secrets", "secret.reloader.stakater.com/reload", "secret.reloader.stakater.com/auto",
		"secrets.exclude.reloader.stakater.com/reload",
	}
)

// Annotations that are about sources of both kinds.
const (
	auto   = "reloader.stakater.com/auto"
	search = "reloader.stakater.com/search"
	match  = "reloader.stakater.com/match"
	ignore = "reloader.stakater.com/ignore"
)

// A source is a ConfigMap or a Secret.
type source struct {
	*kind
	metav1.Object

	hash string
}

// sourceOf returns a source, or nil for any other object.
func sourceOf(o any) *source {
	var entries []string
	switch o := o.(type) {
	case *corev1.ConfigMap:
		for key, value := range o.Data {
			entries = append(entries, key+"="+value)
		}
		for key, value := range o.BinaryData {
			entries = append(entries, key+"="+base64.StdEncoding.EncodeToString(value))
		}
		return &source{configMaps, o, hash(entries)}
	case *corev1.Secret:
		for key, value := range o.Data {
			entries = append(entries, key+"="+string(value))
		}
		return &source{secrets, o, hash(entries)}
	default:
		return nil
	}
}

func hash(entries []string) string {
	slices.Sort(entries)
	sum := sha1.Sum([]byte(strings.Join(entries, ";"))) //nolint:gosec // what Reloader writes
	return hex.EncodeToString(sum[:])
}

var notInVariables = regexp.MustCompile(`[^A-Z0-9]+`)

// variable returns the name of the variable that a restart because of the source sets.
func (s *source) variable() string {
	name := notInVariables.ReplaceAllString(strings.ToUpper(s.GetName()), "_")
	return "STAKATER_" + strings.TrimPrefix(name, "_") + "_" + s.name
}

// is reports whether a reference in a pod template, to a ConfigMap or to a Secret, leads to the source.
func (s *source) is(k *kind, name string) bool { return s.kind == k && s.GetName() == name }
