package path

// Unsettled reports whether a layer is called once more when the operation has ended.
func (o *Op) Unsettled() bool { return o.settles != 0 }
