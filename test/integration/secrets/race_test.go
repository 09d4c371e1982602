//go:build race

package secrets

// The replicas are built like the tests.
const race = true
