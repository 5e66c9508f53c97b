package e2b

import (
	"math"
	"time"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
)

// envdVersion is the version of E2B's envd whose features the guest has; clients choose by it.
const envdVersion = "0.6.13"

// minMemoryMB is the least that E2B's document lets a sandbox have. Metrics show what it really has.
const minMemoryMB = 128

// accessDoc is what a client needs to use a sandbox: the answer to create and connect.
type accessDoc struct {
	SandboxID          string  `json:"sandboxID"`
	TemplateID         string  `json:"templateID"`
	Alias              string  `json:"alias,omitempty"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken,omitempty"`
	TrafficAccessToken *string `json:"trafficAccessToken,omitempty"`
	Domain             *string `json:"domain,omitempty"`
}

// listedDoc describes a sandbox in a list.
type listedDoc struct {
	SandboxID   string            `json:"sandboxID"`
	TemplateID  string            `json:"templateID"`
	Alias       string            `json:"alias,omitempty"`
	ClientID    string            `json:"clientID"`
	EnvdVersion string            `json:"envdVersion"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int64             `json:"cpuCount"`
	MemoryMB    int64             `json:"memoryMB"`
	DiskSizeMB  int64             `json:"diskSizeMB"`
	Metadata    map[string]string `json:"metadata"`
	State       string            `json:"state"` // running or paused
}

// detailDoc describes one sandbox in full.
type detailDoc struct {
	listedDoc
	EnvdAccessToken string       `json:"envdAccessToken"`
	Domain          *string      `json:"domain,omitempty"`
	Lifecycle       lifecycleDoc `json:"lifecycle"`
	Network         networkDoc   `json:"network"`
	Internet        bool         `json:"allowInternetAccess"`
}

type lifecycleDoc struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"` // kill or pause
}

type networkDoc struct {
	AllowPublicTraffic bool     `json:"allowPublicTraffic"`
	AllowOut           []string `json:"allowOut,omitempty"`
	DenyOut            []string `json:"denyOut,omitempty"`
}

// resourcesOf is what a sandbox has: what it asked for, else the defaults.
func resourcesOf(b models.Sandbox) providers.Resources {
	spec, _ := kind.SpecOf(b) // what it cannot read stays at its default
	return spec.Resources.Or(providers.StandardResources())
}

func isPublic(b models.Sandbox) bool {
	spec, _ := kind.SpecOf(b)
	return spec.Public
}

func templateOf(b models.Sandbox) string {
	if b.Template == nil {
		return b.Image
	}
	return *b.Template
}

func (e *Server) access(b models.Sandbox) accessDoc {
	a := accessDoc{
		SandboxID: b.ID, TemplateID: templateOf(b), Alias: templateOf(b), ClientID: clientID, EnvdVersion: envdVersion,
		EnvdAccessToken: e.Signer.Access(b.ID), Domain: e.domainOf(),
	}
	if !isPublic(b) {
		a.TrafficAccessToken = new(e.Signer.Traffic(b.ID))
	}
	return a
}

// clientID stands where E2B names a node of its own; clients send it nowhere.
const clientID = "sandyard"

func (e *Server) domainOf() *string {
	if e.Address.Domain == "" {
		return nil
	}
	return &e.Address.Domain
}

func (e *Server) listed(b models.Sandbox) listedDoc {
	r := resourcesOf(b)
	doc := listedDoc{
		SandboxID: b.ID, TemplateID: templateOf(b), Alias: templateOf(b), ClientID: clientID, EnvdVersion: envdVersion,
		StartedAt: b.CreatedAt, EndAt: b.ExpiresAt, CPUCount: int64(math.Ceil(r.CPUs)),
		MemoryMB: max(r.MemoryMB, minMemoryMB), DiskSizeMB: r.DiskMB,
		Metadata: b.Labels, State: string(b.State),
	}
	if b.StartedAt != nil {
		doc.StartedAt = *b.StartedAt
	}
	if doc.Metadata == nil {
		doc.Metadata = map[string]string{}
	}
	return doc
}

func (e *Server) detail(b models.Sandbox) detailDoc {
	d := detailDoc{
		listedDoc: e.listed(b), EnvdAccessToken: e.Signer.Access(b.ID), Domain: e.domainOf(),
		Lifecycle: lifecycleDoc{
			OnTimeout:  "kill",
			AutoResume: b.AutoResume,
		}, Network: networkDoc{AllowPublicTraffic: isPublic(b)},
	}
	d.Internet, d.Network.AllowOut, d.Network.DenyOut = egressOf(b)
	if b.OnTimeout == "pause" {
		d.Lifecycle.OnTimeout = "pause"
	}
	return d
}
