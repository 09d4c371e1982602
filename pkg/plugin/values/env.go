// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package values

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// setEnv sets a variable of the environment.
func (c *conversion) setEnv(path, name, key string, value any) {
	if c.env[name] != nil {
		c.fail(path, "sets "+name+", which is also set elsewhere in reloader.deployment.env")
	}
	c.env[name] = map[string]any{"name": name, key: value}
}

func (c *conversion) setEnvFromSecret(path, name, secret string, key any) {
	c.setEnv(path, name, "valueFrom", map[string]any{"secretKeyRef": map[string]any{"name": secret, "key": key}})
}

// each calls set for the elements of a map that have a value. Reloader's chart leaves the others out.
func (c *conversion) each(path string, all map[string]any, set func(name string, value any)) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if empty(all[name]) {
			c.unset = append(c.unset, path+"."+name)
			continue
		}
		set(name, all[name])
	}
}

func openEnv(c *conversion, path string, variables map[string]any) {
	c.each(path, variables, func(name string, value any) { c.setEnv(path, name, "value", fmt.Sprint(value)) })
}

// envSecret is the Secret that users create for variables whose values were in the values of the chart.
const envSecret = "configdep-env"

func secretEnv(c *conversion, path string, variables map[string]any) {
	var names []string
	c.each(path, variables, func(name string, _ any) {
		c.setEnvFromSecret(path, name, envSecret, name)
		names = append(names, name)
	})
	if len(names) > 0 {
		c.note(byHand, path, fmt.Sprintf("create a Secret %s in the namespace of configdep, with these values by the keys %s: the chart makes no such Secret",
			envSecret, strings.Join(names, ", ")))
	}
}

func fieldEnv(c *conversion, path string, variables map[string]any) {
	c.each(path, variables, func(name string, field any) {
		c.setEnv(path, name, "valueFrom", map[string]any{"fieldRef": map[string]any{"fieldPath": field}})
	})
}

func existingEnv(c *conversion, path string, secrets map[string]any) {
	c.each(path, secrets, func(secret string, keys any) {
		typed(func(c *conversion, path string, keys map[string]any) {
			c.each(path, keys, func(name string, key any) { c.setEnvFromSecret(path, name, secret, key) })
			c.note(byHand, path, "copy this Secret into the namespace of configdep, if that is another one than Reloader's")
		})(c, path+"."+secret, keys)
	})
}
