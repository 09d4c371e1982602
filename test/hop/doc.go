// Package hop makes clients change between replicas all the time, and checks what they
// see.
package hop
