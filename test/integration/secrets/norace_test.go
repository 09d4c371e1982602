//go:build !race

package secrets

const race = false
