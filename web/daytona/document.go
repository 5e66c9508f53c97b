package daytona

import (
	"net"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/egress"
	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
)

// sandbox is Daytona's document of a sandbox.
type sandbox struct {
	ID                 string            `json:"id"`
	OrganizationID     string            `json:"organizationId"`
	Name               string            `json:"name"`
	Snapshot           string            `json:"snapshot,omitempty"`
	User               string            `json:"user"`
	Env                map[string]string `json:"env,omitzero"` // not in lists
	Labels             map[string]string `json:"labels"`
	Public             bool              `json:"public"`
	NetworkBlockAll    bool              `json:"networkBlockAll"`
	NetworkAllowList   string            `json:"networkAllowList,omitempty"`
	DomainAllowList    string            `json:"domainAllowList,omitempty"`
	Target             string            `json:"target"`
	CPU                float64           `json:"cpu"`
	GPU                float64           `json:"gpu"`
	Memory             float64           `json:"memory"` // GiB
	Disk               float64           `json:"disk"`   // GiB
	State              string            `json:"state"`
	DesiredState       string            `json:"desiredState"`
	ErrorReason        string            `json:"errorReason,omitempty"`
	Recoverable        bool              `json:"recoverable"`
	BackupState        string            `json:"backupState"`
	AutoStopInterval   int64             `json:"autoStopInterval"` // minutes; 0 = never
	AutoDeleteInterval int64             `json:"autoDeleteInterval"`
	AutoDestroyAt      string            `json:"autoDestroyAt,omitempty"`
	CreatedAt          string            `json:"createdAt"`
	UpdatedAt          string            `json:"updatedAt"`
	LastActivityAt     string            `json:"lastActivityAt"`
	SandboxClass       string            `json:"sandboxClass"`
	ToolboxProxyURL    string            `json:"toolboxProxyUrl"`
}

const (
	target   = "default"
	boxUser  = "user"
	boxClass = "container"
)

// stateOf is a sandbox's state in Daytona's words.
func stateOf(b models.Sandbox) string {
	switch b.State {
	case models.SandboxCreating:
		return "creating"
	case models.SandboxRunning:
		switch b.Desired {
		case models.DesiredPaused:
			return "stopping"
		case models.DesiredDeleted:
			return "destroying"
		}
		return "started"
	case models.SandboxPaused:
		switch b.Desired {
		case models.DesiredRunning:
			return "starting"
		case models.DesiredDeleted:
			return "destroying"
		}
		return "stopped"
	case models.SandboxDeleting:
		return "destroying"
	case models.SandboxDeleted:
		return "destroyed"
	default:
		return "error"
	}
}

func desiredOf(b models.Sandbox) string {
	switch b.Desired {
	case models.DesiredPaused:
		return "stopped"
	case models.DesiredDeleted:
		return "destroyed"
	}
	return "started"
}

// nameOf is a sandbox's name: the one that it was given, or else its id.
func nameOf(b models.Sandbox) string {
	if b.Key != nil {
		return *b.Key
	}
	return b.ID
}

func (s *sandboxes) document(c *fiber.Ctx, b models.Sandbox) sandbox {
	wish, _ := kind.SpecOf(b) // what it cannot read stays at its default
	has := wish.Resources.Or(providers.StandardResources())
	d := sandbox{
		ID: b.ID, OrganizationID: b.TenantID, Name: nameOf(b), User: boxUser, Env: wish.Env, Labels: b.Labels,
		Public: wish.Public, Target: target,
		CPU: b.CPUs, Memory: float64(b.MemoryMB) / 1024, Disk: float64(has.DiskMB) / 1024,
		State: stateOf(b), DesiredState: desiredOf(b), BackupState: "None", AutoStopInterval: minutes(b.TimeoutMS),
		AutoDeleteInterval: -1, CreatedAt: stamp(b.CreatedAt), UpdatedAt: stamp(b.LastActiveAt),
		LastActivityAt: stamp(b.LastActiveAt),
		SandboxClass:   boxClass, ToolboxProxyURL: c.BaseURL() + toolbox,
	}
	if b.Template != nil {
		d.Snapshot = *b.Template
	}
	if d.Env == nil {
		d.Env = map[string]string{}
	}
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	if d.State == "error" && b.EndReason != nil {
		d.ErrorReason = *b.EndReason
	}
	if b.TimeoutMS == mostStop.Milliseconds() {
		d.AutoStopInterval = 0
	}
	switch {
	case b.OnTimeout == "delete":
		d.AutoDeleteInterval = 0
	case b.PausedTimeoutMS > 0:
		d.AutoDeleteInterval = minutes(b.PausedTimeoutMS)
	}
	if at := b.DiesAt(); at != nil {
		d.AutoDestroyAt = stamp(*at)
	}
	d.NetworkBlockAll, d.NetworkAllowList, d.DomainAllowList = networkOf(b)
	return d
}

func minutes(ms int64) int64 {
	return int64((time.Duration(ms)*time.Millisecond + time.Minute - 1) / time.Minute)
}

// networkOf is a sandbox's policy in Daytona's terms.
func networkOf(b models.Sandbox) (block bool, addresses, domains string) {
	p, _ := kind.PolicyOf(b.Egress) // what it cannot read is nothing
	if slices.Contains(p.Allow, egress.All) {
		return false, "", ""
	}
	var cidrs, names []string
	for _, entry := range p.Allow {
		if _, _, err := net.ParseCIDR(entry); err == nil || net.ParseIP(entry) != nil {
			cidrs = append(cidrs, entry)
		} else {
			names = append(names, entry)
		}
	}
	return p.Off(), strings.Join(cidrs, ","), strings.Join(names, ",")
}
