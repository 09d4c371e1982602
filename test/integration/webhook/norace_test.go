//go:build !race

package webhook

const race = false
