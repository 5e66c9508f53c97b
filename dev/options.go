package dev

// Options change how a server is run. The zero value is for one that is kept.
type Options struct {
	// Throwaway is for tests: nothing is synced to disk, and the server's directory is removed when the server ends,
	// however the process that started it ends.
	Throwaway bool
	// Synced is for benchmarks: a throwaway server writes to disk as one that is kept does, so that its speed means
	// something.
	Synced bool
}

// careless says that what is written may be lost in a crash.
func (o Options) careless() bool { return o.Throwaway && !o.Synced }
