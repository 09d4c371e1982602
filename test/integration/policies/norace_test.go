//go:build !race

package policies

const race = false
