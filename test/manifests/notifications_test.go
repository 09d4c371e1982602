// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/configdep/configdep/pkg/notify"
	"github.com/configdep/configdep/pkg/notify/destination"
	"github.com/configdep/configdep/pkg/notify/webhook"
)

// The schema of the chart allows what the server allows, and nothing else.
func TestSchemaOfNotificationsIsTheServers(t *testing.T) {
	type property struct {
		Const      string
		Enum       []string
		MaxItems   int
		Items      *property
		Required   []string
		Properties map[string]*property
	}
	var schema property
	if err := json.Unmarshal(read(t, "values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	config := schema.Properties["notifications"].Properties["config"].Properties
	one := config["destinations"].Items
	if config["apiVersion"].Const != destination.APIVersion || config["kind"].Const != destination.Kind {
		t.Errorf("apiVersion = %q, kind = %q", config["apiVersion"].Const, config["kind"].Const)
	}
	var formats, events, fields, known []string
	for _, format := range webhook.Formats() {
		formats = append(formats, string(format))
	}
	for _, what := range notify.Whats() {
		events = append(events, string(what))
	}
	for field := range reflect.TypeFor[destination.Destination]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fields = append(fields, name)
	}
	for name := range one.Properties {
		known = append(known, name)
	}
	for name, tt := range map[string]struct{ want, got []string }{
		"formats": {formats, one.Properties["format"].Enum},
		"events":  {events, one.Properties["events"].Items.Enum},
		"fields":  {fields, known},
	} {
		if diff := cmp.Diff(tt.want, tt.got, cmpopts.SortSlices(strings.Compare)); diff != "" {
			t.Errorf("%s (-server +schema):\n%s", name, diff)
		}
	}
}

// The server accepts what the chart makes of its values.
func TestNotificationsOfTheChartAreValid(t *testing.T) {
	secret := rendered(t, "everything.yaml")[objectKey{"Secret", namespace, "configdep-notifications"}]
	if secret == nil {
		t.Fatal("the chart has no Secret with destinations")
	}
	encoded, _, err := nestedString(secret.Object, "data", "config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	configs, errs := destination.Read(path, "eu-1")
	if len(errs) > 0 || len(configs) != 1 || configs[0].Name != "oncall" {
		t.Errorf("destinations = %v, %v, of\n%s", configs, errs, content)
	}
}
