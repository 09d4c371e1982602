//go:build !race

package namespaced

const race = false
