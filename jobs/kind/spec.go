package kind

import (
	"encoding/json"
	"fmt"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

// Place is where a sandbox may be made, and from what.
type Place struct {
	Provider string `json:"provider"`
	Image    string `json:"image,omitempty"` // empty = the provider's default
}

// Spec is the part of a sandbox's wish that its columns do not hold.
type Spec struct {
	Env       map[string]string   `json:"env,omitempty"`
	Resources providers.Resources `json:"resources"`
	Public    bool                `json:"public,omitempty"` // for the edge: the ports need no token
	Git       *Git                `json:"git,omitempty"`
	Setup     *Setup              `json:"setup,omitempty"`
	Next      []Place             `json:"next,omitempty"` // where it may be made if its provider cannot make it
	FromTemplate
}

// BesidePids are the processes and threads of a sandbox that its own limit does not count: the guest's, and the
// engine's for it.
const BesidePids = 64

// SpecOf reads the spec of a sandbox.
func SpecOf(box models.Sandbox) (s Spec, err error) {
	if err := json.Unmarshal(box.Spec, &s); err != nil {
		return s, fmt.Errorf("read the sandbox's spec: %w", err)
	}
	return s, nil
}

// FromTemplate is what a sandbox has from its template, as it was when the sandbox was wished for.
type FromTemplate struct {
	WorkDir    string        `json:"work_dir,omitempty"`
	Runtime    string        `json:"runtime,omitempty"`
	Start      string        `json:"start_command,omitempty"`
	Ready      *models.Probe `json:"ready,omitempty"`
	Ports      []int         `json:"ports,omitempty"`
	MCPPort    int           `json:"mcp_port,omitempty"`
	VSCodePort int           `json:"vscode_port,omitempty"`
	Build      string        `json:"build,omitempty"`  // that the image came from
	Shared     bool          `json:"shared,omitempty"` // the template was shared, so its image is the operator's choice
}

// defaultPatience is how long the programs of a new sandbox may take where nothing says it.
const defaultPatience = time.Minute

// ReadyTimeout is how long the programs of a new sandbox may take; 0 where there are none to wait for.
func ReadyTimeout(d models.Definition) time.Duration {
	switch {
	case d.Ready == nil && d.StartCommand == "":
		return 0
	case d.Ready == nil || d.Ready.TimeoutSeconds == 0:
		return defaultPatience
	}
	return time.Duration(d.Ready.TimeoutSeconds * float64(time.Second))
}
