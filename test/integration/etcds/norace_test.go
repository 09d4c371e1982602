//go:build !race

package etcds

const race = false
