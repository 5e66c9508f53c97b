package web

import (
	"cmp"
	"encoding/json"
	"math"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

// envdVersion is the version of E2B's envd whose features the guest has; clients choose by it.
const envdVersion = "0.6.13"

// What a sandbox has that was made without limits of its own.
const (
	defaultCPUs     = 1
	defaultMemoryMB = 512
	defaultDiskMB   = 256
	defaultPids     = 256
)

// e2bMinMemoryMB is the least that E2B's document lets a sandbox have. Metrics show what it really has.
const e2bMinMemoryMB = 128

// e2bAccess is what a client needs to use a sandbox: the answer to create and connect.
type e2bAccess struct {
	SandboxID          string  `json:"sandboxID"`
	TemplateID         string  `json:"templateID"`
	Alias              string  `json:"alias,omitempty"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken,omitempty"`
	TrafficAccessToken *string `json:"trafficAccessToken,omitempty"`
	Domain             *string `json:"domain,omitempty"`
}

// e2bListed describes a sandbox in a list.
type e2bListed struct {
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

// e2bDetail describes one sandbox in full.
type e2bDetail struct {
	e2bListed
	EnvdAccessToken string       `json:"envdAccessToken"`
	Domain          *string      `json:"domain,omitempty"`
	Lifecycle       e2bLifecycle `json:"lifecycle"`
	Network         e2bNetwork   `json:"network"`
	Internet        bool         `json:"allowInternetAccess"`
}

type e2bLifecycle struct {
	AutoResume bool   `json:"autoResume"`
	OnTimeout  string `json:"onTimeout"` // kill or pause
}

type e2bNetwork struct {
	AllowPublicTraffic bool     `json:"allowPublicTraffic"`
	AllowOut           []string `json:"allowOut,omitempty"`
	DenyOut            []string `json:"denyOut,omitempty"`
}

// e2bSpec is what these documents show of a sandbox's wish.
type e2bSpec struct {
	Resources providers.Resources `json:"resources"`
	Public    bool                `json:"public"`
}

func e2bSpecOf(b models.Sandbox) (s e2bSpec) {
	_ = json.Unmarshal(b.Spec, &s) // what it cannot read stays at its default
	return s
}

func e2bTemplate(b models.Sandbox) string {
	if b.Template == nil {
		return b.Image
	}
	return *b.Template
}

func (e *e2b) access(b models.Sandbox) e2bAccess {
	a := e2bAccess{
		SandboxID: b.ID, TemplateID: e2bTemplate(b), Alias: e2bTemplate(b), ClientID: e2bClient, EnvdVersion: envdVersion,
		EnvdAccessToken: e.signer.Access(b.ID), Domain: e.domainOf(),
	}
	if !e2bSpecOf(b).Public {
		token := e.signer.Traffic(b.ID)
		a.TrafficAccessToken = &token
	}
	return a
}

// e2bClient stands where E2B names a node of its own; clients send it nowhere.
const e2bClient = "sandyard"

func (e *e2b) domainOf() *string {
	if e.domain == "" {
		return nil
	}
	return &e.domain
}

func (e *e2b) listed(b models.Sandbox) e2bListed {
	r := e2bSpecOf(b).Resources
	doc := e2bListed{
		SandboxID: b.ID, TemplateID: e2bTemplate(b), Alias: e2bTemplate(b), ClientID: e2bClient, EnvdVersion: envdVersion,
		StartedAt: b.CreatedAt, EndAt: b.ExpiresAt, CPUCount: int64(math.Ceil(cmp.Or(r.CPUs, defaultCPUs))),
		MemoryMB: max(cmp.Or(r.MemoryMB, defaultMemoryMB), e2bMinMemoryMB), DiskSizeMB: cmp.Or(r.DiskMB, defaultDiskMB),
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

func (e *e2b) detail(b models.Sandbox) e2bDetail {
	d := e2bDetail{
		e2bListed: e.listed(b), EnvdAccessToken: e.signer.Access(b.ID), Domain: e.domainOf(),
		Lifecycle: e2bLifecycle{OnTimeout: "kill", AutoResume: b.AutoResume}, Network: e2bNetwork{AllowPublicTraffic: e2bSpecOf(b).Public},
	}
	d.Internet, d.Network.AllowOut, d.Network.DenyOut = e2bEgressOf(b)
	if b.OnTimeout == "pause" {
		d.Lifecycle.OnTimeout = "pause"
	}
	return d
}
