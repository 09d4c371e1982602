//go:build race

package rights

// The replicas are built like the tests.
const race = true
