package providers

import "fmt"

// Why sandboxes have ended that nobody deleted, as users read it.
const (
	EndedByEngine   = "its engine was stopped or restarted, which ends sandboxes unless live-restore is on"
	EndedByMachine  = "its machine was restarted"
	EndedByMemory   = "it ran out of memory"
	EndedByKill     = "it was killed outside Sandyard"
	EndedByRemoval  = "it was removed outside Sandyard"
	EndedForSilence = "it stopped responding and was killed"
)

// EndedByItself is the reason of one whose first process ended without being killed.
func EndedByItself(code int) string {
	return fmt.Sprintf("its main process exited with code %d", code)
}

// Died is the ErrLost of a sandbox that has ended for a reason; empty = nobody knows.
func Died(why string) error {
	if why == "" {
		return ErrLost
	}
	return Lost.Errorf("the sandbox died: %s", why)
}
