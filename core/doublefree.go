package core

import "github.com/fencepost-gpu/fencepost/core/names"

// sourceSlice is the source of findings about typed memory: slices, their views
// and host buffers.
const sourceSlice = "slice"

// Harmless reports whether a finding is of something that harmed nothing and
// no operator has to act on: a second free through a typed handle, which knows that it
// was freed and frees nothing. An explicit free beside a deferred one is the
// common case. Health, incident files and dumps leave these out.
func (f Finding) Harmless() bool { return f.Kind == names.FindingDoubleFree && f.Source == sourceSlice }

// ReportDoubleFree reports that a handle of typed memory was freed again: text
// says of which memory, err is what the caller is told, and at where it was done.
// What the layers remember of victim goes with it. It makes no device call, does
// not block, and may be called whatever the runtime's health.
func (r *Runtime) ReportDoubleFree(victim Block, text string, err error, at Stack) {
	f := Finding{Kind: names.FindingDoubleFree, Source: sourceSlice, Victim: victim, CallStack: at, Text: text, Err: err}
	if victim.ID.Generation != 0 {
		if known, ok := r.resource.Inspect().Remember(victim.ID); ok {
			f.Victim.State, f.AllocStack, f.FreeStack, f.Uses = known.Block.State, known.AllocStack, known.FreeStack, known.Uses
		}
	}
	if caller := at.Caller(); caller != "" {
		f.Text += ", at " + caller
	}
	r.report(f)
}
