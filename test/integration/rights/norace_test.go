//go:build !race

package rights

const race = false
