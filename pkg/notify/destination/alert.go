// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/notify/webhook"
)

// Alert is the name of the destination that environment variables configure.
const Alert = "alert"

// The environment variables of Stakater Reloader.
const (
	alertOnReload       = "ALERT_ON_RELOAD"
	alertSink           = "ALERT_SINK"
	alertURL            = "ALERT_WEBHOOK_URL"
	alertProxy          = "ALERT_WEBHOOK_PROXY"
	alertAdditionalInfo = "ALERT_ADDITIONAL_INFO"
)

// maxInfo limits ALERT_ADDITIONAL_INFO, in bytes, so that it leaves room for the text.
const maxInfo = 1000

// alertText is like the text of Reloader, which knows no restart without a source.
const alertText = `configdep {{if .SourceKind -}}
detected changes in *{{.SourceName}}* of type *{{if eq .SourceKind "Secret"}}SECRET{{else}}CONFIGMAP{{end}}* in namespace *{{.Namespace}}*. ` +
	`Hence reloaded *{{.Name}}* of type *{{.Kind}}* in namespace *{{.Namespace}}*{{else -}}
reloaded *{{.Name}}* of type *{{.Kind}}* in namespace *{{.Namespace}}*: {{.Message}}{{end}}`

// FromEnvironment returns the destination that environment variables configure, as they do for Reloader: there is one if
// ALERT_ON_RELOAD is exactly true. It receives a message after each restart.
func FromEnvironment(getenv func(string) string) ([]webhook.Config, []error) {
	if getenv(alertOnReload) != "true" {
		return nil, nil
	}
	c := webhook.Config{
		Name: Alert, Events: []notify.What{notify.Restarted}, Format: webhook.PlainText, Template: alertText,
		URL: strings.TrimSpace(getenv(alertURL)), Proxy: strings.TrimSpace(getenv(alertProxy)),
	}
	switch f := webhook.Format(strings.ToLower(strings.TrimSpace(getenv(alertSink)))); f {
	case webhook.Slack, webhook.Teams, webhook.GoogleChat:
		c.Format = f
	}
	var errs []error
	if info := strings.TrimSpace(getenv(alertAdditionalInfo)); len(info) > maxInfo {
		errs = append(errs, fmt.Errorf("%s: must have at most %d bytes", alertAdditionalInfo, maxInfo))
	} else if info != "" {
		c.Template = "{{" + strconv.Quote(info) + "}} : " + alertText // quoted, so that it is no template
	}
	variables := map[string]string{"url": alertURL, "proxy": alertProxy}
	for _, err := range c.Validate() {
		problem := err.Problem
		if err.Field == "url" && c.URL == "" {
			problem = "must be set, because " + alertOnReload + " is true: " + problem
		}
		errs = append(errs, fmt.Errorf("%s: %s", variables[err.Field], problem))
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return []webhook.Config{c}, nil
}
