package rotated

// syncDir does nothing: Windows refuses to flush a folder that was opened to be
// read, and NTFS writes names to its journal by itself.
func syncDir(string) error { return nil }
