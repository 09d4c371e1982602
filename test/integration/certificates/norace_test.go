//go:build !race

package certificates

const race = false
