package link

import "errors"

var (
	// ErrSuperseded ends a conversation because another worker has taken the sandbox over.
	ErrSuperseded = errors.New("another worker took over the sandbox")
	// ErrTorn ends a conversation in which bytes were lost or damaged; dialling again starts a new one.
	ErrTorn = errors.New("the link to the sandbox is broken: a message is missing or damaged")
	// ErrEnded ends a conversation that the guest has given up.
	ErrEnded = errors.New("the guest closed the link")
	// ErrCrowded ends a stream from which nobody has read for too long while others of the sandbox had no room.
	ErrCrowded = errors.New(
		"the stream was closed: unread data of its sandbox takes too much memory; read faster, or open fewer streams",
	)

	errStreams = errors.New("the guest opened a stream with an invalid or used number")
)
