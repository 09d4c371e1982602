//go:build race

package integration

// The replicas are built like the tests.
const race = true
