package driver

// Wrapper is what a driver around another offers, so that the device beneath
// can be found: a call between two devices needs both, not what wraps them.
type Wrapper interface {
	// Unwrap returns the driver that is wrapped; never nil.
	Unwrap() Driver
}

// Unwrap returns the driver beneath every [Wrapper] of d. It makes no device
// call.
func Unwrap(d Driver) Driver {
	for {
		w, ok := d.(Wrapper)
		if !ok {
			return d
		}
		d = w.Unwrap()
	}
}
