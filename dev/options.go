package dev

// Option changes how a server is run.
type Option func(*options)

type options struct {
	throwaway bool
}

// Throwaway is for tests: nothing is synced to disk, and the server's directory is removed when the server ends, however
// the process that started it ends.
func Throwaway() Option {
	return func(o *options) { o.throwaway = true }
}

func collect(opts []Option) options {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return o
}
