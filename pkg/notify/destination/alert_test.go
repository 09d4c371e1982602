// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/notify/webhook"
)

// environment returns a function like os.Getenv.
func environment(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

// Those who come from Stakater Reloader change nothing about their variables.
func TestFromEnvironment_Destinations(t *testing.T) {
	const url = "https://chat.example.com/s3cret"
	want := func(change func(*webhook.Config)) []webhook.Config {
		c := webhook.Config{Name: "alert", URL: url, Format: webhook.PlainText, Template: alertText, Events: []notify.What{notify.Restarted}}
		change(&c)
		return []webhook.Config{c}
	}
	for name, tt := range map[string]struct {
		variables map[string]string
		want      []webhook.Config
	}{
		"nothing is set":           {map[string]string{"ALERT_ON_RELOAD": ""}, nil},
		"false":                    {map[string]string{"ALERT_ON_RELOAD": "false"}, nil},
		"only true is true":        {map[string]string{"ALERT_ON_RELOAD": "True"}, nil},
		"with a space":             {map[string]string{"ALERT_ON_RELOAD": "true "}, nil},
		"off with an invalid URL":  {map[string]string{"ALERT_ON_RELOAD": "1", "ALERT_WEBHOOK_URL": "s3cret"}, nil},
		"without a sink":           {nil, want(func(*webhook.Config) {})},
		"an unknown sink":          {map[string]string{"ALERT_SINK": "webex"}, want(func(*webhook.Config) {})},
		"the name of our own":      {map[string]string{"ALERT_SINK": "generic"}, want(func(*webhook.Config) {})},
		"Slack":                    {map[string]string{"ALERT_SINK": "slack"}, want(func(c *webhook.Config) { c.Format = webhook.Slack })},
		"Slack in other letters":   {map[string]string{"ALERT_SINK": " Slack\n"}, want(func(c *webhook.Config) { c.Format = webhook.Slack })},
		"Teams":                    {map[string]string{"ALERT_SINK": "TEAMS"}, want(func(c *webhook.Config) { c.Format = webhook.Teams })},
		"Google Chat":              {map[string]string{"ALERT_SINK": "gchat"}, want(func(c *webhook.Config) { c.Format = webhook.GoogleChat })},
		"a URL with a newline":     {map[string]string{"ALERT_WEBHOOK_URL": " " + url + "\n"}, want(func(*webhook.Config) {})},
		"a proxy":                  {map[string]string{"ALERT_WEBHOOK_PROXY": " http://proxy.example.com:3128 "}, want(func(c *webhook.Config) { c.Proxy = "http://proxy.example.com:3128" })},
		"no proxy":                 {map[string]string{"ALERT_WEBHOOK_PROXY": " "}, want(func(*webhook.Config) {})},
		"additional information":   {map[string]string{"ALERT_ADDITIONAL_INFO": " cluster \"eu-1\" "}, want(func(c *webhook.Config) { c.Template = `{{"cluster \"eu-1\""}} : ` + alertText })},
		"no more than blank space": {map[string]string{"ALERT_ADDITIONAL_INFO": " \n"}, want(func(*webhook.Config) {})},
	} {
		t.Run(name, func(t *testing.T) {
			variables := map[string]string{"ALERT_ON_RELOAD": "true", "ALERT_WEBHOOK_URL": url}
			maps.Copy(variables, tt.variables)
			got, errs := FromEnvironment(environment(variables))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("destinations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFromEnvironment_ExplainsMistakesWithoutSecrets(t *testing.T) {
	const (
		urls    = "must be https://HOST/PATH or http://HOST/PATH, at most 4096 bytes, without spaces and line ends"
		proxies = "ALERT_WEBHOOK_PROXY: must be http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT, at most 4096 bytes, without spaces and line ends"
	)
	for name, tt := range map[string]struct {
		variables map[string]string
		want      string
	}{
		"no URL":         {map[string]string{"ALERT_WEBHOOK_URL": " "}, "ALERT_WEBHOOK_URL: must be set, because ALERT_ON_RELOAD is true: " + urls},
		"an invalid URL": {map[string]string{"ALERT_WEBHOOK_URL": "chat.example.com/s3cret"}, "ALERT_WEBHOOK_URL: " + urls},
		"a proxy":        {map[string]string{"ALERT_WEBHOOK_PROXY": "s3cret:3128"}, proxies},
		"a long text":    {map[string]string{"ALERT_ADDITIONAL_INFO": strings.Repeat("x", 1001)}, "ALERT_ADDITIONAL_INFO: must have at most 1000 bytes"},
		"both":           {map[string]string{"ALERT_WEBHOOK_URL": "s3cret", "ALERT_WEBHOOK_PROXY": "s3cret"}, "ALERT_WEBHOOK_URL: " + urls + "\n" + proxies},
	} {
		t.Run(name, func(t *testing.T) {
			variables := map[string]string{"ALERT_ON_RELOAD": "true", "ALERT_WEBHOOK_URL": "https://chat.example.com/s3cret"}
			maps.Copy(variables, tt.variables)
			got, errs := FromEnvironment(environment(variables))
			if err := errors.Join(errs...); err == nil || err.Error() != tt.want || got != nil {
				t.Errorf("errors = %v, want %s", err, tt.want)
			}
		})
	}
}

// bodies is a transport that keeps what is sent.
type bodies chan string

func (b bodies) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	b <- r.Header.Get("Content-Type") + " " + string(body)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// The texts are those of Reloader, as far as it has them.
func TestFromEnvironment_Texts(t *testing.T) {
	restarted := func(trigger, message string) notify.Event {
		return notify.Event{
			What: notify.Restarted, Workload: dependency.WorkloadKey{Kind: "Deployment", Namespace: "shop", Name: "web"},
			UID: types.UID("1"), Trigger: trigger, Message: message,
		}
	}
	const hence = " in namespace *shop*. Hence reloaded *web* of type *Deployment* in namespace *shop*"
	for name, tt := range map[string]struct {
		variables map[string]string
		event     notify.Event
		want      string
	}{
		"a Secret": {map[string]string{"ALERT_SINK": "slack"}, restarted("Secret/db", "Restarted because Secret/db has changed"),
			`application/json {"text":"configdep detected changes in *db* of type *SECRET*` + hence + `"}`},
		"a ConfigMap": {map[string]string{"ALERT_SINK": "gchat"}, restarted("ConfigMap/db", "Restarted because ConfigMap/db has changed"),
			`application/json; charset=UTF-8 {"text":"configdep detected changes in *db* of type *CONFIGMAP*` + hence + `"}`},
		"plain text": {nil, restarted("Secret/db", "Restarted because Secret/db has changed"),
			"text/plain; charset=utf-8 configdep detected changes in db of type SECRET in namespace shop. Hence reloaded web of type Deployment in namespace shop"},
		"a Reload": {nil, restarted("Request", "Restarted at the request of alice"),
			"text/plain; charset=utf-8 configdep reloaded web of type Deployment in namespace shop: Restarted at the request of alice"},
		"what tenants wrote": {map[string]string{"ALERT_SINK": "slack"}, restarted("Secret/<!channel>", "x"),
			`application/json {"text":"configdep detected changes in *\u0026lt;!channel\u0026gt;* of type *SECRET*` + hence + `"}`},
		"additional information": {map[string]string{"ALERT_ADDITIONAL_INFO": `{{.Name}} "eu" *1*`}, restarted("Secret/db", "x"),
			`text/plain; charset=utf-8 {{.Name}} "eu" 1 : configdep detected changes in db of type SECRET in namespace shop. Hence reloaded web of type Deployment in namespace shop`},
		"long information": {map[string]string{"ALERT_ADDITIONAL_INFO": strings.Repeat("x", 1000)}, restarted("Secret/db", "x"),
			"text/plain; charset=utf-8 " + strings.Repeat("x", 1000) + " : configdep detected changes in db of type SECRET in namespace shop. Hence reloaded web of type Deployment in namespace shop"},
	} {
		t.Run(name, func(t *testing.T) {
			variables := map[string]string{"ALERT_ON_RELOAD": "true", "ALERT_WEBHOOK_URL": "https://chat.example.com/s3cret"}
			maps.Copy(variables, tt.variables)
			configs, errs := FromEnvironment(environment(variables))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			sent := make(bodies, 1)
			configs[0].Transport = sent
			sink, err := webhook.New(configs[0])
			if err != nil {
				t.Fatal(err)
			}
			go sink.Run(t.Context())
			other := tt.event
			other.What = notify.RestartFailed // is not sent
			sink.Notify(other)
			sink.Notify(tt.event)
			if diff := cmp.Diff(tt.want, <-sent); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}
