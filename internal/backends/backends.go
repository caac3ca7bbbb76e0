// Package backends says which backends a GPU can serve, for Open and for the doctor.
package backends

// Of lists the backends that a device can serve, the best first. pools says whether the device has
// stream-ordered memory pools, maps whether it maps memory. The last one is always "direct".
func Of(pools, maps bool) []string {
	var served []string
	if maps {
		served = append(served, "pool")
	}
	if pools {
		served = append(served, "async")
	}
	return append(served, "direct")
}
