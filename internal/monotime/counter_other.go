//go:build !amd64 || purego

package monotime

// ticks reads no counter: the system's clock does that here without a call of the kernel.
func ticks() uint64 { return 0 }

func hasConstantRate() bool { return false }
