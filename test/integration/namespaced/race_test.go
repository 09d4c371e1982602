//go:build race

package namespaced

// The replicas are built like the tests.
const race = true
