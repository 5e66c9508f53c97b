package link

import "errors"

var (
	// ErrSuperseded ends a conversation because another worker has taken the sandbox over.
	ErrSuperseded = errors.New("another worker took the sandbox over")
	// ErrTorn ends a conversation in which bytes were lost or damaged; dialling again starts a new one.
	ErrTorn = errors.New("the link lost bytes")
	// ErrEnded ends a conversation that the guest has given up.
	ErrEnded = errors.New("the guest ended the conversation")
	// ErrCrowded ends a stream from which nobody has read for too long while others of the sandbox had no room.
	ErrCrowded = errors.New("the stream was closed: what its sandbox sends is not read, and holds too much memory")

	errStreams = errors.New("the guest opens streams that are not its own or open already")
)
