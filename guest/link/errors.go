package link

import "errors"

var (
	// ErrSuperseded ends a conversation because another worker has taken the sandbox over.
	ErrSuperseded = errors.New("another worker took the sandbox over")
	// ErrTorn ends a conversation in which bytes were lost or damaged; dialling again starts a new one.
	ErrTorn = errors.New("the link lost bytes")
	// ErrEnded ends a conversation that the guest has given up.
	ErrEnded = errors.New("the guest ended the conversation")
)
