package runloop

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sandyard/providers"
	"sandyard/providers/remote"
)

const (
	maxAnswer = 1 << 20 // bytes of one devbox's document
	maxPage   = 16 << 20
	pageSize  = 100
	maxPages  = 1000
	tenants   = 100     // of these, of an account of a tenant's
	maxSecret = 8 << 10 // bytes of a token
)

// errNotRunloop is what an answer means that is none.
var errNotRunloop = &providers.Error{
	Class:   providers.Internal,
	Message: "the server did not answer as Runloop's API does; ask your operator to check RUNLOOP_BASE_URL",
}

// described is a devbox as lists and details have it.
type described struct {
	ID       string        `json:"id"`
	Name     string        `json:"name"`
	Status   string        `json:"status"`
	Reason   string        `json:"failure_reason"`
	Metadata remote.Labels `json:"metadata"`
	Created  int64         `json:"create_time_ms"`
	Tunnel   *tunnel       `json:"tunnel"`
	Launch   struct {
		KeepAlive int64 `json:"keep_alive_time_seconds"`
	} `json:"launch_parameters"`
}

// Backend implements remote.Described.
func (d described) Backend() string { return d.ID }

// Phase implements remote.Described.
func (d described) Phase() remote.Phase {
	switch d.Status {
	case "scheduled", "queued", "provisioning", "initializing", "resuming":
		return remote.PhaseMaking
	case "running":
		return remote.PhaseRuns
	case "suspending":
		return remote.PhaseStops
	case "suspended":
		return remote.PhaseStopped
	case "failure":
		return remote.PhaseFailed
	case "shutdown":
		return remote.PhaseGone
	}
	return remote.PhaseOdd
}

func (d described) check() error {
	if !remote.ValidID(d.ID) || d.Phase() == remote.PhaseOdd {
		return errNotRunloop
	}
	return nil
}

func (d described) instance() providers.Instance {
	i := providers.Instance{
		ID: d.Metadata[remote.LabelSandbox], Ref: d.ID, CreatedAt: time.UnixMilli(d.Created).UTC(),
		State: providers.StateRunning,
	}
	switch d.Phase() {
	case remote.PhaseStops, remote.PhaseStopped:
		i.State = providers.StatePaused
	case remote.PhaseFailed:
		i.State, i.Ended = providers.StateStopped, "it failed at Runloop"
	}
	if d.Launch.KeepAlive > 0 {
		i.Until = i.CreatedAt.Add(time.Duration(d.Launch.KeepAlive) * time.Second)
	}
	return i
}

// wish is the body of a create.
type wish struct {
	Name          string            `json:"name"`
	BlueprintID   string            `json:"blueprint_id,omitempty"`
	BlueprintName string            `json:"blueprint_name,omitempty"`
	Snapshot      string            `json:"snapshot_id,omitempty"`
	Env           map[string]string `json:"environment_variables"`
	Metadata      remote.Labels     `json:"metadata"`
	Launch        launch            `json:"launch_parameters"`
}

type launch struct {
	KeepAlive int64   `json:"keep_alive_time_seconds"`
	Policy    string  `json:"network_policy_id,omitempty"`
	Size      string  `json:"resource_size_request,omitempty"`
	CPU       float64 `json:"custom_cpu_cores,omitempty"`
	Memory    int64   `json:"custom_gb_memory,omitempty"` // GiB
	Disk      int64   `json:"custom_disk_size,omitempty"` // GiB
}

func at(backend string) string { return "/v1/devboxes/" + backend }

func (p *Provider) apiCreate(ctx context.Context, w wish) (d described, err error) {
	_, err = p.vendor.Call(ctx, remote.Request{
		Method: http.MethodPost, Path: "/v1/devboxes", Body: w, Once: true,
		Want: []int{http.StatusOK, http.StatusCreated}, Limit: maxAnswer, Into: &d,
	})
	if err == nil {
		err = d.check()
	}
	if err == nil && d.Name != w.Name {
		err = errNotRunloop
	}
	return d, remote.Translated(vendorName, "create a sandbox", err, createClass)
}

// apiGet describes a devbox. One that was shut down is providers.ErrNotFound.
func (p *Provider) apiGet(ctx context.Context, backend string) (d described, err error) {
	_, err = p.vendor.Call(ctx, remote.Request{
		Method: http.MethodGet, Path: at(backend), Want: []int{http.StatusOK}, Limit: maxAnswer, Into: &d,
	})
	if err == nil {
		err = d.check()
	}
	if err == nil && d.ID != backend {
		err = errNotRunloop
	}
	if err == nil && d.Phase() == remote.PhaseGone {
		err = providers.ErrNotFound
	}
	return d, translated("describe a sandbox", err)
}

// apiDo makes a call that changes one devbox. What Runloop says of it is not looked at: it may change later.
func (p *Provider) apiDo(ctx context.Context, what, backend, action string) error {
	_, err := p.vendor.Call(ctx, remote.Request{
		Method: http.MethodPost, Path: at(backend) + "/" + action, Body: struct{}{}, Want: []int{http.StatusOK},
	})
	return remote.Translated(vendorName, what, err, changeClass)
}

// living are the statuses of devboxes that are not at their end, in the order in which a devbox comes through them: it
// may go on while the lists are read, and is in one of them all the same.
func living() []string {
	return []string{
		"scheduled", "queued", "provisioning", "initializing", "suspended", "resuming", "running", "suspending", "suspended",
	}
}

// apiList returns the devboxes with all of these labels that are not at their end, the oldest first. Lists cannot be
// asked for metadata, and one without a status may hold all devboxes that there ever were.
func (p *Provider) apiList(ctx context.Context, tags remote.Labels) ([]described, error) {
	seen := map[string]bool{}
	var all []described
	for _, status := range living() {
		found, err := p.listed(ctx, status)
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			if !d.Metadata.Have(tags) || seen[d.ID] || d.Phase() == remote.PhaseGone {
				continue
			}
			if err := d.check(); err != nil {
				return nil, err
			}
			seen[d.ID] = true
			d.Metadata = d.Metadata.Ours()
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b described) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

// listed returns all devboxes in a status.
func (p *Provider) listed(ctx context.Context, status string) (all []described, err error) {
	query := url.Values{
		"status": {status}, "limit": {strconv.Itoa(pageSize)}, "include_total_count": {"false"},
	}
	pages := maxPages
	if p.cfg.Secret != "" {
		pages = tenants
	}
	for range pages {
		page, more, err := p.apiPage(ctx, query)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if !more {
			return all, nil
		}
		if len(page) == 0 || page[len(page)-1].ID == query.Get("starting_after") {
			return nil, errNotRunloop
		}
		query.Set("starting_after", page[len(page)-1].ID)
	}
	return nil, providers.Internal.Errorf("Runloop lists more than %d devboxes", pages*pageSize)
}

func (p *Provider) apiPage(ctx context.Context, query url.Values) (found []described, more bool, err error) {
	var page struct {
		Devboxes []described `json:"devboxes"`
		More     bool        `json:"has_more"`
	}
	_, err = p.vendor.Call(ctx, remote.Request{
		Method: http.MethodGet, Path: "/v1/devboxes", Query: query, Want: []int{http.StatusOK}, Limit: maxPage, Into: &page,
	})
	if err == nil && page.Devboxes == nil {
		err = errNotRunloop
	}
	return page.Devboxes, page.More, listTranslated(err)
}

// tunnel is the way to the ports of a devbox.
type tunnel struct {
	Key   string `json:"tunnel_key"`
	Mode  string `json:"auth_mode"`
	Token string `json:"auth_token"`
}

func (t tunnel) check() error {
	if !remote.ValidID(t.Key) || len(t.Key) > 63 || len(t.Token) > maxSecret || !remote.Printable(t.Token) {
		return errNotRunloop
	}
	return nil
}

// apiTunnel opens the way to the ports of a devbox, for those alone who have its token.
func (p *Provider) apiTunnel(ctx context.Context, backend string) (t tunnel, err error) {
	_, err = p.vendor.Call(ctx, remote.Request{
		Method: http.MethodPost, Path: at(backend) + "/enable_tunnel",
		Body: map[string]any{"auth_mode": "authenticated", "wake_on_http": false},
		Want: []int{http.StatusOK, http.StatusCreated}, Limit: maxAnswer, Into: &t,
	})
	if err == nil {
		err = t.check()
	}
	return t, translated("open the sandbox's ports", err)
}
