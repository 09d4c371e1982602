//go:build race

package policies

// The replicas are built like the tests.
const race = true
