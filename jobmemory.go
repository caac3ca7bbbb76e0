package fencepost

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// Alloc allocates n values of T, uninitialised, for the time of the job: from
// its reservation, if it has one. They may be freed earlier, with
// [cuda.Slice.Free]. Errors are those of [cuda.Alloc], and those of every call of
// a job: [core.StreamMisuseError] after its end, and its context's. It does not
// wait for the device.
func Alloc[T cuda.Element](j *Job, n int) (*cuda.Slice[T], error) {
	if err := j.check("Alloc"); err != nil {
		return nil, err
	}
	s := j.state
	slice, err := cuda.Alloc[T](s.ctx, s.rt.memory, n, cuda.AllocOptions{Stream: j.on.lease.ID(), Tag: s.tag, Claim: s.claim.ID})
	if err != nil {
		return nil, err
	}
	if t := slice.Tracking(); t.Kind == core.TrackedBlock {
		s.blocks = append(s.blocks, t.Block)
	}
	return slice, nil
}

// Upload allocates memory for the values, for the time of the job, and enqueues
// the copy. The values must not be changed before the device has copied them:
// when Do returns nil it has. Errors are those of [Alloc] and
// [cuda.CopyToDevice].
func Upload[T cuda.Element](j *Job, values []T) (*cuda.Slice[T], error) {
	slice, err := Alloc[T](j, len(values))
	if err != nil {
		return nil, err
	}
	j.on.busy = true // also after an error: the driver may have begun
	if err := cuda.CopyToDevice(j.state.ctx, slice, j.on.lease.ID(), values); err != nil {
		return nil, err
	}
	return slice, nil
}

// Download copies the values to the host and waits for them, until the job's
// context ends. The memory may be the job's or any other of the runtime. Errors
// are those of [cuda.Download], [core.InvalidRequestError] for a nil slice, and
// those of every call of a job, see [Alloc].
func Download[T cuda.Element](j *Job, from *cuda.Slice[T]) ([]T, error) {
	if err := j.check("Download"); err != nil {
		return nil, err
	}
	if from == nil {
		return nil, &core.InvalidRequestError{Op: "Download", Field: "from", Reason: "nil: pass what Alloc or Upload returned, and see to its error"}
	}
	values := make([]T, from.Len())
	j.on.busy = true
	if err := cuda.CopyToHost(j.state.ctx, values, from, j.on.lease.ID()); err != nil {
		return nil, err
	}
	if err := j.state.waitFor(j.on); err != nil {
		return nil, err
	}
	return values, nil
}
