package web

import (
	"encoding/json"
	"errors"

	"github.com/danielgtaylor/huma/v2"

	"sandyard/models"
	"sandyard/web/problem"
)

// Ceiling is a limit in a change: left out, it stays as it is, and null removes it.
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
	return &huma.Schema{Type: huma.TypeNumber, Nullable: true, Minimum: &least, Maximum: &most, Description: "null = no limit"}
}

// CeilingsBody is limits that may be removed.
type CeilingsBody struct {
	MaxCPUs      Ceiling `json:"max_cpus,omitempty" doc:"Cores of all live sandboxes together; null = no limit"`
	MaxMemoryMiB Ceiling `json:"max_memory_mib,omitempty" doc:"Memory of all live sandboxes together, paused ones included; null = no limit"`
	JobRate      Ceiling `json:"job_rate,omitempty" doc:"Submissions a second; null = no limit"`
	JobBurst     Ceiling `json:"job_burst,omitempty" doc:"Submissions at once, where there is a rate; null = those of one second"`
}

// set returns those of the named limits that are given.
func set(limits map[string]Ceiling) models.Ceilings {
	all := models.Ceilings{}
	for name, c := range limits {
		if c.given {
			all[name] = c.value
		}
	}
	return all
}

func (b CeilingsBody) ceilings() models.Ceilings {
	return set(map[string]Ceiling{"max_cpus": b.MaxCPUs, "max_memory_mib": b.MaxMemoryMiB, "job_rate": b.JobRate, "job_burst": b.JobBurst})
}

// ceilingProblem names the field where it can.
func ceilingProblem(err error) error {
	if errors.Is(err, models.ErrCeiling) {
		return problem.Invalid("body", models.ErrCeiling.Error())
	}
	return err
}
