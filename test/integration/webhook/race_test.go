//go:build race

package webhook

// The replicas are built like the tests.
const race = true
