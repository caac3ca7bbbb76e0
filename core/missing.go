package core

// Missing is the error of a call that was given nil where it needs something: an
// [InvalidRequestError] that names the argument and says what to give.
func Missing(op, field, advice string) error {
	return &InvalidRequestError{Op: op, Field: field, Reason: "nil: " + advice}
}

const openRuntime = "open a runtime, and look at the error of opening it"

// missing is the error of a call on no runtime at all.
func (r *Runtime) missing(op string) error {
	if r == nil {
		return Missing(op, "runtime", openRuntime)
	}
	return nil
}

func missingRecorder(op string) error {
	return Missing(op, "recorder", "make one with NewStrictRecorder or NewPermissiveRecorder")
}
