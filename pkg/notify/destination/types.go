// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/notify/webhook"
)

// The version and the kind of the file.
const (
	APIVersion = "config.configdep.io/v1alpha1"
	Kind       = "Notifications"
)

// Notifications is the content of the file.
type Notifications struct {
	metav1.TypeMeta `json:",inline"`
	// Destinations are where events are sent: 1 to 16.
	Destinations []Destination `json:"destinations"`
}

// Destination is where events are sent, and which.
type Destination struct {
	// Name identifies the destination in logs and metrics. It is a DNS label, unique in the file, and neither Alert nor
	// Instead.
	Name string `json:"name"`
	// Format is the form in which events are sent.
	Format webhook.Format `json:"format"`
	// URL is where events are sent. It excludes URLFile.
	URL string `json:"url,omitempty"`
	// URLFile is a file that contains the URL. A relative path begins in the folder of this file, as that of KeyFile.
	URLFile string `json:"urlFile,omitempty"`
	// KeyFile is a file that contains the key which signs CloudEvents. A newline at its end is not part of the key.
	KeyFile string `json:"keyFile,omitempty"`
	// Source is the source of CloudEvents. The default is /configdep, or /configdep/NAME with the name of the cluster.
	Source string `json:"source,omitempty"`
	// Template is a Go text/template for the text of messages.
	Template string `json:"template,omitempty"`
	// Events are the events that are sent. The default is DefaultEvents.
	Events []notify.What `json:"events,omitempty"`
	// Namespaces are the namespaces whose events are sent. The default is all.
	Namespaces []string `json:"namespaces,omitempty"`
	// Timeout limits a request: a duration from 1s to 1m. The default is 10s.
	Timeout string `json:"timeout,omitempty"`
	// Proxy is the URL of the proxy for requests. The default is that of the environment, if there is one.
	Proxy string `json:"proxy,omitempty"`
}

// DefaultEvents returns the events that are sent if the file does not say which: those that users act on, or want to
// know of. Others are details of how a restart proceeds, or are tried again.
func DefaultEvents() []notify.What {
	return []notify.What{
		notify.Restarted, notify.ContentChanged, notify.FieldsSet, notify.WouldRestart, notify.RestartFailed, notify.Reverted, notify.SwitchedOff, notify.Approval, notify.PodsFailing,
		notify.InvalidAnnotation, notify.TooManyPatterns, notify.StrategyNotAllowed, notify.TooManySources, notify.SourceMissing,
		notify.FieldsNotAllowed, notify.FieldConflict, notify.FieldsRefused,
	}
}
