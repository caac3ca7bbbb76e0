package terminal

import "github.com/fencepost-gpu/fencepost/internal/size"

// Size is a number of bytes with one decimal of a binary unit: "1.5 GiB".
func Size(n uint64) string { return size.Of(n) }
