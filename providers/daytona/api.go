package daytona

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sandyard/providers"
	"sandyard/providers/remote"
)

const (
	maxAnswer = 1 << 20 // bytes of one sandbox's document
	maxPage   = 16 << 20
	pageSize  = 200
	maxPages  = 1000
	tenants   = 50 // of these, of an account of a tenant's
	maxCursor = 4 << 10
	maxSecret = 8 << 10 // bytes of a token
)

// errNotDaytona is what an answer means that is none.
var errNotDaytona = &providers.Error{
	Class:   providers.Internal,
	Message: "the server did not answer as Daytona's API does; ask your operator to check DAYTONA_API_URL",
}

// described is a sandbox as lists and details have it.
type described struct {
	ID        string        `json:"id"`
	Name      string        `json:"name"`
	State     string        `json:"state"`
	Reason    string        `json:"errorReason"`
	Labels    remote.Labels `json:"labels"`
	CreatedAt time.Time     `json:"createdAt"`
	Until     *time.Time    `json:"autoDestroyAt"`
	Toolbox   string        `json:"toolboxProxyUrl"`
}

// Backend implements remote.Described.
func (d described) Backend() string { return d.ID }

// Phase implements remote.Described.
func (d described) Phase() remote.Phase {
	switch d.State {
	case "creating", "restoring", "starting", "resuming", "pending_build", "building_snapshot", "pulling_snapshot",
		"resizing", "snapshotting", "forking", "unknown":
		return remote.PhaseMaking
	case "started":
		return remote.PhaseRuns
	case "stopping", "pausing":
		return remote.PhaseStops
	case "stopped", "paused", "archived", "archiving":
		return remote.PhaseStopped
	case "error", "build_failed":
		return remote.PhaseFailed
	case "destroying", "destroyed":
		return remote.PhaseGone
	}
	return remote.PhaseOdd
}

func (d described) check() error {
	if !remote.ValidID(d.ID) || d.Phase() == remote.PhaseOdd {
		return errNotDaytona
	}
	return nil
}

func (d described) instance() providers.Instance {
	i := providers.Instance{
		ID: d.Labels[remote.LabelSandbox], Ref: d.ID, CreatedAt: d.CreatedAt, State: providers.StateRunning,
	}
	switch d.Phase() {
	case remote.PhaseStops, remote.PhaseStopped:
		i.State = providers.StatePaused
	case remote.PhaseFailed:
		i.State, i.Ended = providers.StateStopped, "it failed at Daytona"
	}
	if d.Until != nil {
		i.Until = *d.Until
	}
	return i
}

// wish is the body of a create.
type wish struct {
	Name       string            `json:"name"`
	Snapshot   string            `json:"snapshot,omitempty"`
	Build      *buildInfo        `json:"buildInfo,omitempty"`
	Env        map[string]string `json:"env"`
	Labels     remote.Labels     `json:"labels"`
	Target     string            `json:"target,omitempty"`
	Public     bool              `json:"public"`
	BlockAll   bool              `json:"networkBlockAll"`
	CPU        int64             `json:"cpu,omitempty"`
	Memory     int64             `json:"memory,omitempty"` // GiB
	Disk       int64             `json:"disk,omitempty"`   // GiB
	AutoStop   int64             `json:"autoStopInterval"`
	AutoDelete int64             `json:"autoDeleteInterval"`
	TTL        int64             `json:"ttlMinutes"`

	image string
}

type buildInfo struct {
	Dockerfile string `json:"dockerfileContent"`
}

func at(backend string) string { return "/sandbox/" + backend }

func (p *Provider) apiCreate(ctx context.Context, w wish) (d described, err error) {
	_, err = p.vendor.Call(ctx, remote.Request{
		Method: http.MethodPost, Path: "/sandbox", Body: w, Once: true,
		Want: []int{http.StatusOK, http.StatusCreated}, Limit: maxAnswer, Into: &d,
	})
	if err == nil {
		err = d.check()
	}
	if err == nil && d.Name != w.Name {
		err = errNotDaytona
	}
	return d, remote.Translated(vendorName, "create a sandbox", err, createClass)
}

// apiGet describes a sandbox by its id or its name. One that is being removed is providers.ErrNotFound.
func (p *Provider) apiGet(ctx context.Context, backend string) (d described, err error) {
	_, err = p.vendor.Call(ctx, remote.Request{
		Method: http.MethodGet, Path: at(backend), Want: []int{http.StatusOK}, Limit: maxAnswer, Into: &d,
	})
	if err == nil {
		err = d.check()
	}
	if err == nil && d.ID != backend && d.Name != backend {
		err = errNotDaytona
	}
	if err == nil && d.Phase() == remote.PhaseGone {
		err = providers.ErrNotFound
	}
	return d, translated("describe a sandbox", err)
}

// apiDo makes a call about one sandbox whose answer tells nothing.
func (p *Provider) apiDo(ctx context.Context, what, method, path string) error {
	_, err := p.vendor.Call(ctx, remote.Request{
		Method: method, Path: path, Want: []int{http.StatusOK, http.StatusCreated, http.StatusNoContent},
	})
	return translated(what, err)
}

// setLife lets the backend remove a sandbox after left; 0 = never. A server without such a call is NotSupported.
func (p *Provider) setLife(ctx context.Context, backend string, left time.Duration) error {
	path := at(backend) + "/ttl/" + strconv.FormatInt(minutes(left), 10)
	err := p.apiDo(ctx, "set the sandbox's timeout", http.MethodPost, path)
	if r, ok := errors.AsType[*remote.Refusal](err); !ok || r.Status != http.StatusNotFound {
		return err
	}
	if _, err := p.apiGet(ctx, backend); err != nil {
		return err
	}
	return &providers.Error{
		Class: providers.NotSupported, Message: "this Daytona server cannot set the sandbox's timeout", Err: err,
	}
}

// ownLife says whether an error of setLife is of a server that does not leave the sandbox's time to us: an account may
// insist on an end, which is then Invalid.
func ownLife(err error) bool {
	return remote.IsClass(err, providers.Invalid) || remote.IsClass(err, providers.NotSupported)
}

// apiList returns the sandboxes with all of these labels. What the backend lists beside them is not ours to touch.
func (p *Provider) apiList(ctx context.Context, tags remote.Labels) ([]described, error) {
	labels, err := json.Marshal(tags)
	if err != nil {
		return nil, err
	}
	query := url.Values{"labels": {string(labels)}, "limit": {strconv.Itoa(pageSize)}}
	seen := map[string]bool{}
	var all []described
	pages := maxPages
	if p.cfg.Secret != "" {
		pages = tenants
	}
	for range pages {
		var page struct {
			Items []described `json:"items"`
			Next  *string     `json:"nextCursor"`
		}
		_, err := p.vendor.Call(ctx, remote.Request{
			Method: http.MethodGet, Path: "/sandbox", Query: query, Want: []int{http.StatusOK}, Limit: maxPage, Into: &page,
		})
		if err == nil && page.Items == nil {
			err = errNotDaytona
		}
		if err != nil {
			return nil, listTranslated(err)
		}
		for _, d := range page.Items {
			if !d.Labels.Have(tags) || seen[d.ID] {
				continue
			}
			if err := d.check(); err != nil {
				return nil, err
			}
			d.Labels = d.Labels.Ours()
			if seen[d.ID] = true; d.Phase() != remote.PhaseGone {
				all = append(all, d)
			}
		}
		if page.Next == nil || *page.Next == "" {
			return all, nil
		}
		if len(*page.Next) > maxCursor || *page.Next == query.Get("cursor") {
			return nil, errNotDaytona
		}
		query.Set("cursor", *page.Next)
	}
	return nil, providers.Internal.Errorf("Daytona lists more than %d sandboxes", pages*pageSize)
}

// preview is where a port of a sandbox is reached.
type preview struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

func (p *Provider) apiPreview(ctx context.Context, backend string, port uint16) (v preview, err error) {
	_, err = p.vendor.Call(ctx, remote.Request{
		Method: http.MethodGet, Path: fmt.Sprintf("%s/ports/%d/preview-url", at(backend), port), Want: []int{http.StatusOK},
		Limit: maxAnswer, Into: &v,
	})
	if err == nil && (len(v.Token) > maxSecret || !remote.Printable(v.Token)) {
		err = errNotDaytona
	}
	return v, translated("open a port of the sandbox", err)
}

// minutes is a time as the API takes it: whole, and no more than it can hold. 0 stays 0.
func minutes(d time.Duration) int64 {
	const most = 1<<31 - 1
	return min(max(int64((d+time.Minute-1)/time.Minute), 0), most)
}

// dockerfile is one that takes an image as it is.
func dockerfile(image string) *buildInfo {
	return &buildInfo{"FROM " + strings.TrimPrefix(image, ImagePrefix) + "\n"}
}
