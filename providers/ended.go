package providers

import "fmt"

// Why sandboxes have ended that nobody deleted, as users read it.
const (
	EndedByEngine   = "its engine was stopped or restarted, which ends sandboxes unless live-restore is on"
	EndedByMachine  = "its machine was restarted"
	EndedByMemory   = "it ran out of memory"
	EndedByKill     = "it was killed behind our back"
	EndedByRemoval  = "it was removed behind our back"
	EndedForSilence = "it did not answer any more and was ended"
)

// EndedByItself is the reason of one whose first process ended without being killed.
func EndedByItself(code int) string {
	return fmt.Sprintf("its first process ended by itself, with exit code %d", code)
}

// Died is the ErrLost of a sandbox that has ended for a reason; empty = nobody knows.
func Died(why string) error {
	if why == "" {
		return ErrLost
	}
	return Errorf(Lost, "the sandbox died: %s", why)
}
