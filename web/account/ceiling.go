package account

import (
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"

	"sandyard/models"
)

// Ceiling is a limit in a change: left out, it stays as it is, and null makes it as a new tenant or user has it.
type Ceiling struct {
	given bool
	value *float64
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Ceiling) UnmarshalJSON(b []byte) error {
	c.given = true
	return json.Unmarshal(b, &c.value)
}

// Schema implements huma.SchemaProvider.
func (Ceiling) Schema(huma.Registry) *huma.Schema {
	least, most := 0.0, 1e9
	return &huma.Schema{Type: huma.TypeNumber, Nullable: true, Minimum: &least, Maximum: &most}
}

// CeilingsBody is limits of a tenant or of a user.
type CeilingsBody struct {
	MaxSandboxes Ceiling `json:"max_sandboxes,omitempty" doc:"Live sandboxes at once; null = of a tenant 100, of a user no limit"`
	MaxQueued    Ceiling `json:"max_queued,omitempty" doc:"Waiting jobs at once; null = of a tenant 10000, of a user no limit"`
	MaxCPUs      Ceiling `json:"max_cpus,omitempty" doc:"Cores of all live sandboxes together; null = no limit"`
	MaxMemoryMiB Ceiling `json:"max_memory_mib,omitempty" doc:"Memory of all live sandboxes together, paused ones included; null = no limit"`
	JobRate      Ceiling `json:"job_rate,omitempty" doc:"Submissions a second; null = no limit"`
	JobBurst     Ceiling `json:"job_burst,omitempty" doc:"Submissions at once, where there is a rate; null = those of one second"`
}

// ceilings returns those limits that are given.
func (b CeilingsBody) ceilings() models.Ceilings {
	all := models.Ceilings{}
	for name, c := range map[string]Ceiling{
		"max_sandboxes": b.MaxSandboxes, "max_queued": b.MaxQueued, "max_cpus": b.MaxCPUs, "max_memory_mib": b.MaxMemoryMiB,
		"job_rate": b.JobRate, "job_burst": b.JobBurst,
	} {
		if c.given {
			all[name] = c.value
		}
	}
	return all
}
