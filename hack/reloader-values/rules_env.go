// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// scalars is a map of texts, numbers and truth values.
func scalars(value any) (any, string) {
	m, is := value.(map[string]any)
	if !is {
		return nil, "must be a map"
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		switch m[key].(type) {
		case nil, string, bool, int:
		default:
			return nil, fmt.Sprintf("must have text for %s; put it in quotes", key)
		}
	}
	return value, ""
}

func asText(value any) string { return fmt.Sprint(value) }

// setEnv sets a variable of the environment.
func (c *conversion) setEnv(path, name, key string, value any) {
	if c.env[name] != nil {
		c.fail(path, "sets "+name+", which is also set elsewhere in reloader.deployment.env")
	}
	c.env[name] = map[string]any{"name": name, key: value}
}

// eachVariable calls set for the variables of a map that have a value. Reloader's chart leaves the others out.
func (c *conversion) eachVariable(path string, variables any, set func(name string, value any)) {
	m := variables.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if empty(m[name]) {
			c.unset = append(c.unset, path+"."+name)
			continue
		}
		set(name, m[name])
	}
}

func openEnv(c *conversion, path string, value any) {
	c.eachVariable(path, value, func(name string, value any) { c.setEnv(path, name, "value", asText(value)) })
}

// envSecret is the Secret that users create for variables whose values were in the values of the chart.
const envSecret = "configdep-env"

func secretEnv(c *conversion, path string, value any) {
	var names []string
	c.eachVariable(path, value, func(name string, _ any) {
		c.setEnv(path, name, "valueFrom", map[string]any{"secretKeyRef": map[string]any{"name": envSecret, "key": name}})
		names = append(names, name)
	})
	if len(names) > 0 {
		c.note(byHand, path, fmt.Sprintf("create a Secret %s in the namespace of configdep, with these values by the keys %s: the chart makes no such Secret",
			envSecret, strings.Join(names, ", ")))
	}
}

func fieldEnv(c *conversion, path string, value any) {
	c.eachVariable(path, value, func(name string, value any) {
		c.setEnv(path, name, "valueFrom", map[string]any{"fieldRef": map[string]any{"fieldPath": value}})
	})
}

func existingEnv(c *conversion, path string, value any) {
	m := value.(map[string]any)
	for _, secret := range slices.Sorted(maps.Keys(m)) {
		path := path + "." + secret
		if empty(m[secret]) {
			c.unset = append(c.unset, path)
			continue
		}
		keys, allowed := texts(m[secret])
		if allowed != "" {
			c.fail(path, allowed)
			continue
		}
		c.eachVariable(path, keys, func(name string, key any) {
			c.setEnv(path, name, "valueFrom", map[string]any{"secretKeyRef": map[string]any{"name": secret, "key": key}})
		})
		c.note(byHand, path, "copy this Secret into the namespace of configdep, if that is another one than Reloader's")
	}
}
