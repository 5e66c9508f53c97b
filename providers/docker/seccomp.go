package docker

import (
	"encoding/json"

	"sandyard/providers"
	"sandyard/providers/confine"
)

// seccompProfile is the list of system calls as the engine takes it.
func seccompProfile() (string, error) {
	text, err := json.Marshal(confine.Calls())
	if err != nil {
		return "", providers.Internal.Errorf("seccomp profile: %w", err)
	}
	return string(text), nil
}
