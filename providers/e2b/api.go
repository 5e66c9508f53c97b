package e2b

import (
	"context"
	"errors"
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
	maxAnswer = 1 << 20 // bytes of one sandbox's document
	maxPage   = 8 << 20
	pageSize  = 100
	maxPages  = 1000
	tenants   = 100 // of these, of an account of a tenant's
	maxToken  = 4 << 10
)

// access is the answer to create and connect.
type access struct {
	ID      string  `json:"sandboxID"`
	Token   string  `json:"envdAccessToken"`
	Traffic *string `json:"trafficAccessToken"`
	Domain  *string `json:"domain"`
}

// described is a sandbox as lists and details have it.
type described struct {
	ID        string        `json:"sandboxID"`
	State     string        `json:"state"`
	StartedAt time.Time     `json:"startedAt"`
	EndAt     time.Time     `json:"endAt"`
	Metadata  remote.Labels `json:"metadata"`
	Token     string        `json:"envdAccessToken"`
	Domain    *string       `json:"domain"`
	Envd      string        `json:"envdVersion"`
}

func (d described) state() providers.State {
	if d.State == "paused" {
		return providers.StatePaused
	}
	return providers.StateRunning
}

func (d described) check() error {
	if !remote.ValidID(d.ID) || d.State != "running" && d.State != "paused" || d.StartedAt.IsZero() {
		return errNotE2B
	}
	return nil
}

func (d described) instance() providers.Instance {
	return providers.Instance{
		ID: d.Metadata[remote.LabelSandbox], Ref: d.ID, State: d.state(), CreatedAt: d.StartedAt, Until: d.EndAt,
	}
}

// errNotE2B is what an answer means that is none.
var errNotE2B = &providers.Error{
	Class:   providers.Internal,
	Message: "the server did not answer as E2B's API does; ask your operator to check E2B_API_URL",
}

// wish is the body of a create.
type wish struct {
	Template string            `json:"templateID"`
	Timeout  int64             `json:"timeout"`
	Secure   bool              `json:"secure"`
	Internet bool              `json:"allow_internet_access"`
	Metadata remote.Labels     `json:"metadata"`
	Env      map[string]string `json:"envVars"`
	Network  network           `json:"network"`
}

type network struct {
	Public bool `json:"allowPublicTraffic"`
}

func (p *Provider) apiCreate(ctx context.Context, w wish, key string) (access, error) {
	var a access
	_, err := p.vendor.Call(ctx, remote.Request{
		Method: http.MethodPost, Path: "/sandboxes", Body: w, Key: key,
		Want: []int{http.StatusCreated}, Limit: maxAnswer, Into: &a,
	})
	if r, ok := errors.AsType[*remote.Refusal](err); ok && r.Missing() {
		return a, &providers.Error{Class: providers.ImageMissing, Message: "E2B has no template '" + w.Template + "'", Err: r}
	}
	if err == nil && !remote.ValidID(a.ID) {
		err = errNotE2B
	}
	return a, translated("create a sandbox", err)
}

func (p *Provider) apiGet(ctx context.Context, backend string) (described, error) {
	var d described
	_, err := p.vendor.Call(ctx, remote.Request{
		Method: http.MethodGet, Path: "/sandboxes/" + backend, Want: []int{http.StatusOK}, Limit: maxAnswer, Into: &d,
	})
	if err == nil {
		err = d.check()
	}
	if err == nil && d.ID != backend {
		err = errNotE2B
	}
	return d, translated("describe a sandbox", err)
}

func (p *Provider) apiConnect(ctx context.Context, backend string) (access, error) {
	var a access
	_, err := p.vendor.Call(ctx, remote.Request{
		Method: http.MethodPost, Path: "/sandboxes/" + backend + "/connect",
		Body: map[string]int64{"timeout": seconds(p.cfg.Timeout)},
		Want: []int{http.StatusOK, http.StatusCreated}, Limit: maxAnswer, Into: &a,
	})
	if err == nil && a.ID != backend {
		err = errNotE2B
	}
	return a, translated("resume a sandbox", err)
}

// apiSimple makes a call that is answered without a body.
func (p *Provider) apiSimple(ctx context.Context, what, method, path string, body any) error {
	_, err := p.vendor.Call(
		ctx,
		remote.Request{Method: method, Path: path, Body: body, Want: []int{http.StatusNoContent, http.StatusOK}},
	)
	return translated(what, err)
}

// apiList returns the sandboxes with all of these tags, running or paused, the oldest first. What the backend lists
// beside them is not ours to touch.
func (p *Provider) apiList(ctx context.Context, tags remote.Labels) ([]described, error) {
	filter := make([]string, 0, len(tags))
	for k, v := range tags {
		filter = append(filter, url.QueryEscape(k)+"="+url.QueryEscape(v))
	}
	slices.Sort(filter)
	query := url.Values{
		"metadata": {
			strings.Join(filter, "&"),
		}, "state": {"running,paused"}, "limit": {strconv.Itoa(pageSize)}, "order": {"asc"},
	}
	var all []described
	pages := maxPages
	if p.cfg.Secret != "" {
		pages = tenants
	}
	for range pages {
		var page []described
		header, err := p.vendor.Call(ctx, remote.Request{
			Method: http.MethodGet, Path: "/v2/sandboxes", Query: query, Want: []int{http.StatusOK}, Limit: maxPage, Into: &page,
		})
		if err != nil {
			return nil, translated("list sandboxes", err)
		}
		for _, d := range page {
			if !d.Metadata.Have(tags) {
				continue
			}
			if err := d.check(); err != nil {
				return nil, err
			}
			d.Metadata = d.Metadata.Ours()
			all = append(all, d)
		}
		next := header.Get("X-Next-Token")
		if next == "" {
			slices.SortStableFunc(all, older)
			return slices.CompactFunc(all, func(a, b described) bool { return a.ID == b.ID }), nil
		}
		if len(next) > maxToken || next == query.Get("nextToken") {
			return nil, errNotE2B
		}
		query.Set("nextToken", next)
	}
	return nil, providers.Internal.Errorf("E2B lists more than %d sandboxes", pages*pageSize)
}

func older(a, b described) int {
	if c := a.StartedAt.Compare(b.StartedAt); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}

// seconds is a time as the API takes it: whole, at least one, and no more than it can hold.
func seconds(d time.Duration) int64 {
	const most = 1<<31 - 1
	return min(max(int64((d+time.Second-1)/time.Second), 1), most)
}
