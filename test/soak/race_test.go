//go:build race

package soak

// The replicas are built like the tests.
const race = true
