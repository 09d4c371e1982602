//go:build race

package etcds

// The replicas are built like the tests.
const race = true
