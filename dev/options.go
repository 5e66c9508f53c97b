package dev

// Option changes how a server is run.
type Option func(*options)

type options struct {
	throwaway bool
	synced    bool
}

// Throwaway is for tests: nothing is synced to disk, and the server's directory is removed when the server ends, however
// the process that started it ends.
func Throwaway() Option {
	return func(o *options) { o.throwaway = true }
}

// Synced is for benchmarks: a throwaway server writes to disk as one that is kept does, so that its speed means something.
func Synced() Option {
	return func(o *options) { o.synced = true }
}

// careless says that what is written may be lost in a crash.
func (o options) careless() bool { return o.throwaway && !o.synced }

func collect(opts []Option) options {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return o
}
