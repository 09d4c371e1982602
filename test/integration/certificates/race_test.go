//go:build race

package certificates

// The replicas are built like the tests.
const race = true
