package gpucore

// access decodes what the instruction of a fault does. at is the function that it lies
// in, or nil; w is the warp, or nil if it has ended.
func access(f *Fault, at *function, w *warp) error {
	f.Access.Why = "this is not decoded"
	return nil
}
