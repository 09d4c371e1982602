// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package render

// Budget is the number of bytes that may still be listed in an object or an answer; what does not fit is counted.
type Budget int

// Take reports whether something of a size fits. Once something has not, nothing does, so that later, smaller
// elements are not listed in its place.
func (b *Budget) Take(bytes int) bool {
	if *b -= Budget(bytes); *b < 0 {
		*b = 0
		return false
	}
	return true
}

// Fit returns the first elements that fit into a budget, and the number of the others.
func Fit[E any](b *Budget, all []E, size func(*E) int) (some []E, more int64) {
	for i := range all {
		if !b.Take(size(&all[i])) {
			return all[:i:i], int64(len(all) - i)
		}
	}
	return all, 0
}
