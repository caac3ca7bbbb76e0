package libcuda

// Symbols are the names that are looked up.
func Symbols() (symbols []string) {
	for _, f := range functions {
		symbols = append(symbols, f.symbol)
	}
	return symbols
}

// Binds says whether the device has come to push its context for every call.
func (d *Device) Binds() bool { return d.mode.Load() == modeBind }

// ForgetLoaded makes the next Load load again.
func ForgetLoaded() { loaded = nil }
