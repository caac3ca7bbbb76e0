package core

// AnyRuntime is a [Runtime], or what is built around one, such as what
// fencepost.Open returns. What launches or allocates takes either.
type AnyRuntime interface {
	// Core is the runtime itself; nil if there is none. It costs nothing and
	// does not block.
	Core() *Runtime
}

// Core is the runtime itself.
func (r *Runtime) Core() *Runtime { return r }

// runtimeOf is the runtime of rt. If there is none, nor one in rt, the error matches
// [ErrInvalidRequest]; op names the call that needs it.
func runtimeOf(op string, rt AnyRuntime) (*Runtime, error) {
	if rt != nil {
		if r := rt.Core(); r != nil {
			return r, nil
		}
	}
	return nil, missingRuntime(op)
}
