package daytona

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"sandyard/egress"
	"sandyard/jobs"
	"sandyard/jobs/kind"
	"sandyard/web/calls"
	"sandyard/web/problem"
)

const (
	// defaultStop is how long a sandbox may be without activity that does not say.
	defaultStop = 15 * time.Minute
	// mostStop is the longest time, and stands for one that never stops.
	mostStop = calls.MaxTimeout
)

// createRequest is the body of a create. What no server without Daytona's cloud can do is refused, not ignored.
type createRequest struct {
	Name              string              `json:"name"`
	Snapshot          string              `json:"snapshot"`
	User              string              `json:"user"`
	Env               map[string]string   `json:"env"`
	Labels            map[string]string   `json:"labels"`
	Public            bool                `json:"public"`
	NetworkBlockAll   bool                `json:"networkBlockAll"`
	NetworkAllowList  string              `json:"networkAllowList"`
	DomainAllowList   string              `json:"domainAllowList"`
	OutboundProxyURL  string              `json:"outboundProxyUrl"`
	OtelEndpoint      string              `json:"otelEndpointOverride"`
	CPU               int                 `json:"cpu"`
	GPU               int                 `json:"gpu"`
	Memory            int64               `json:"memory"`
	Disk              int64               `json:"disk"`
	Spot              bool                `json:"spot"`
	AutoStopInterval  *int64              `json:"autoStopInterval"`
	AutoPauseInterval int64               `json:"autoPauseInterval"`
	AutoDelete        *int64              `json:"autoDeleteInterval"`
	TTLMinutes        int64               `json:"ttlMinutes"`
	Volumes           []map[string]any    `json:"volumes"`
	Secrets           []map[string]string `json:"secrets"`
	LinkedSandbox     string              `json:"linkedSandbox"`
	BuildInfo         *struct {
		Dockerfile    string   `json:"dockerfileContent"`
		ContextHashes []string `json:"contextHashes"`
	} `json:"buildInfo"`
}

func (b *createRequest) unsupported() error {
	for _, field := range []struct {
		name  string
		asked bool
	}{
		{"volumes", len(b.Volumes) > 0},
		{"secrets", len(b.Secrets) > 0},
		{"outboundProxyUrl", b.OutboundProxyURL != ""},
		{"otelEndpointOverride", b.OtelEndpoint != ""},
		{"gpu", b.GPU != 0},
		{"spot", b.Spot},
		{"linkedSandbox", b.LinkedSandbox != ""},
		{"a user other than " + boxUser, b.User != "" && b.User != boxUser},
	} {
		if field.asked {
			return unsupported(field.name)
		}
	}
	return nil
}

// only is a Dockerfile that names an image and does nothing to it.
var only = regexp.MustCompile(`^\s*FROM\s+(\S+)\s*$`)

// wish says in our terms what the body asks for.
func (s *sandboxes) wish(b *createRequest) (w jobs.CreateSandbox, err error) {
	if err := b.unsupported(); err != nil {
		return w, err
	}
	w = jobs.CreateSandbox{
		Template: b.Snapshot, Key: b.Name, Env: b.Env, CPUs: float64(b.CPU), MemoryMB: b.Memory << 10, DiskMB: b.Disk << 10,
		OnTimeout:          "pause",
		MaxLifetimeSeconds: float64(b.TTLMinutes) * 60,
		Foreign:            jobs.Foreign{Metadata: b.Labels, NeverIdle: true, OwnNetwork: true, Public: b.Public},
	}
	if b.BuildInfo != nil {
		image := only.FindStringSubmatch(b.BuildInfo.Dockerfile)
		if image == nil || len(b.BuildInfo.ContextHashes) > 0 {
			return w, problem.New(
				http.StatusBadRequest,
				"unsupported_operation",
				"a create does not build images here; build a template with POST /v1/templates/{name}/builds, and name it as the "+
					"snapshot",
			)
		}
		w.Image = image[1]
	}
	s.network(&w, b)
	stop := b.AutoStopInterval
	if b.AutoPauseInterval > 0 {
		stop = &b.AutoPauseInterval
	}
	span := defaultStop
	if stop != nil {
		if span, err = stopSpan(*stop); err != nil {
			return w, err
		}
	}
	w.TimeoutSeconds = span.Seconds()
	if b.TTLMinutes < 0 {
		return w, problem.Invalid("body.ttlMinutes", "must not be negative")
	}
	switch given := b.AutoDelete; {
	case given == nil || *given < 0:
	case *given == 0:
		w.OnTimeout = "delete"
	default:
		w.PausedTimeoutSeconds = (time.Duration(*given) * time.Minute).Seconds()
	}
	return w, nil
}

// stopSpan is the time without activity that a number of minutes means; 0 = never.
func stopSpan(interval int64) (time.Duration, error) {
	switch most := int64(mostStop / time.Minute); {
	case interval < 0 || interval > most:
		return 0, problem.Invalid("autoStopInterval", fmt.Sprintf("must be between 0 and %d minutes", most))
	case interval == 0:
		return mostStop, nil
	}
	return time.Duration(interval) * time.Minute, nil
}

// network sets where the sandbox may connect to.
func (s *sandboxes) network(w *jobs.CreateSandbox, b *createRequest) {
	list := splitList(b.NetworkAllowList + "," + b.DomainAllowList)
	switch {
	case b.NetworkBlockAll:
		w.Egress = &egress.Policy{}
	case len(list) > 0:
		w.Egress = &egress.Policy{Allow: list}
	case s.calls.Internet():
		w.Foreign.Egress = egress.Public()
	}
}

func splitList(text string) (list []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

func (s *sandboxes) create(c *fiber.Ctx, in *createRequest) error {
	wish, err := s.wish(in)
	if err != nil {
		return err
	}
	box, existing, err := s.calls.Make(c.UserContext(), wish)
	if err != nil {
		return calls.Rename(
			err,
			"template",
			"snapshot",
			"key",
			"name",
			"egress.allow",
			"networkAllowList",
			"memory_mb",
			"memory",
			"disk_mb",
			"disk",
			"cpus",
			"cpu",
		)
	}
	if existing {
		return problem.New(
			http.StatusConflict,
			"name_taken",
			fmt.Sprintf("a sandbox with the name %q exists already; get it by its name, or choose another", in.Name),
		)
	}
	return c.JSON(s.document(c, box))
}

// setNetwork changes where the sandbox may connect to.
func (s *sandboxes) setNetwork(c *fiber.Ctx, in *createRequest) error {
	if in.OutboundProxyURL != "" {
		return unsupported("outboundProxyUrl")
	}
	var w jobs.CreateSandbox
	s.network(&w, in)
	policy := w.Foreign.Egress
	if w.Egress != nil {
		policy = *w.Egress
	}
	return s.change(c, func(ctx context.Context, id string) error {
		_, err := s.calls.Do(ctx, id, &kind.SetEgress{Policy: policy})
		return calls.Rename(err, "policy.allow", "networkAllowList", "allow", "networkAllowList")
	})
}
