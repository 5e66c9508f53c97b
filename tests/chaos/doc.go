// Package chaos is the soak that kills: a whole installation of real processes, PostgreSQL, Redis and Docker engine works
// off the jobs of several clients while all of these are killed, stopped, flushed, cut off and started again by a plan
// that one number makes. When everything is well again it asks what must be true of every job, sandbox and container.
//
// It needs the build tag chaos: see make chaos and make chaos-proof.
package chaos
