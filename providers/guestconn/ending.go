package guestconn

import (
	"io"
	"sync"
	"sync/atomic"
)

// Ending remembers who ended a stream.
type Ending struct {
	once sync.Once
	shut atomic.Bool // closed from our side
	torn atomic.Bool // ended from the other side before that
}

// Note remembers that the other side ended the stream, where err says that it has ended. It returns err.
func (e *Ending) Note(err error) error {
	if err != nil && !e.shut.Load() {
		e.torn.Store(true)
	}
	return err
}

// Torn implements Stream.
func (e *Ending) Torn() bool { return e.torn.Load() }

// Shut closes the stream's connection from our side, once.
func (e *Ending) Shut(conn io.Closer) error {
	var err error
	e.once.Do(func() {
		e.shut.Store(true)
		err = conn.Close()
	})
	return err
}
