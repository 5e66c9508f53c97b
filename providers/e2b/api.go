package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sandyard/providers"
)

const (
	maxAnswer = 1 << 20 // bytes of one sandbox's document
	maxPage   = 8 << 20
	pageSize  = 100
	maxPages  = 1000
	maxToken  = 4 << 10
)

// What marks a sandbox in its metadata.
const (
	tagSandbox = "sandyard_sandbox"
	tagFleet   = "sandyard_fleet"
	tagWorkDir = "sandyard_dir"
	tagHome    = "sandyard_home"
)

var refPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

func validRef(text string) bool { return refPattern.MatchString(text) }

// access is the answer to create and connect.
type access struct {
	ID      string  `json:"sandboxID"`
	Token   string  `json:"envdAccessToken"`
	Traffic *string `json:"trafficAccessToken"`
	Domain  *string `json:"domain"`
}

// described is a sandbox as lists and details have it.
type described struct {
	ID        string            `json:"sandboxID"`
	State     string            `json:"state"`
	StartedAt time.Time         `json:"startedAt"`
	EndAt     time.Time         `json:"endAt"`
	Metadata  map[string]string `json:"metadata"`
	Token     string            `json:"envdAccessToken"`
	Domain    *string           `json:"domain"`
	Envd      string            `json:"envdVersion"`
}

func (d described) state() providers.State {
	if d.State == "paused" {
		return providers.StatePaused
	}
	return providers.StateRunning
}

func (d described) check() error {
	if !validRef(d.ID) || d.State != "running" && d.State != "paused" || d.StartedAt.IsZero() {
		return errNotE2B
	}
	return nil
}

func (d described) instance() providers.Instance {
	return providers.Instance{
		ID: d.Metadata[tagSandbox], Ref: d.ID, State: d.state(), CreatedAt: d.StartedAt, Until: d.EndAt,
	}
}

// errNotE2B is what an answer means that is none.
var errNotE2B = &providers.Error{
	Class:   providers.Internal,
	Message: "the server did not answer as E2B's API does; ask your operator to check E2B_API_URL",
}

// request is one call of the API.
type request struct {
	method string
	path   string
	query  url.Values
	body   any
	key    string // for Idempotency-Key
	want   []int  // statuses of success
	limit  int64  // bytes of the answer
	into   any
}

// call makes it. The error is a *refusal or one of the transport; translated makes it a provider's.
func (p *Provider) call(ctx context.Context, r request) (http.Header, error) {
	ctx, stop := context.WithTimeout(ctx, callPatience)
	defer stop()
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	to := *p.api
	to.Path, to.RawQuery = to.Path+r.path, r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, to.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Api-Key", p.cfg.APIKey)
	req.Header.Set("Accept", "application/json")
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
		req.GetBody = nil // else the transport repeats it by itself, also for a server that does not know such keys
	}
	res, err := p.transport.RoundTrip(req) // which follows no redirect: the key is for this server alone
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if !slices.Contains(r.want, res.StatusCode) {
		if res.StatusCode < http.StatusBadRequest {
			return nil, errNotE2B
		}
		return nil, readRefusal(res)
	}
	if r.into == nil {
		return res.Header, nil
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, r.limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > r.limit || json.Unmarshal(text, r.into) != nil:
		return nil, errNotE2B
	}
	return res.Header, nil
}

// wish is the body of a create.
type wish struct {
	Template string            `json:"templateID"`
	Timeout  int64             `json:"timeout"`
	Secure   bool              `json:"secure"`
	Internet bool              `json:"allow_internet_access"`
	Metadata map[string]string `json:"metadata"`
	Env      map[string]string `json:"envVars"`
	Network  network           `json:"network"`
}

type network struct {
	Public bool `json:"allowPublicTraffic"`
}

func (p *Provider) apiCreate(ctx context.Context, w wish, key string) (access, error) {
	var a access
	_, err := p.call(ctx, request{
		method: http.MethodPost, path: "/sandboxes", body: w, key: key,
		want: []int{http.StatusCreated}, limit: maxAnswer, into: &a,
	})
	if r := (*refusal)(nil); errors.As(err, &r) && r.status == http.StatusNotFound {
		return a, &providers.Error{Class: providers.ImageMissing, Message: "E2B has no template '" + w.Template + "'", Err: r}
	}
	if err == nil && !validRef(a.ID) {
		err = errNotE2B
	}
	return a, translated("create a sandbox", err)
}

func (p *Provider) apiGet(ctx context.Context, backend string) (described, error) {
	var d described
	_, err := p.call(ctx, request{
		method: http.MethodGet, path: "/sandboxes/" + backend, want: []int{http.StatusOK}, limit: maxAnswer, into: &d,
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
	_, err := p.call(ctx, request{
		method: http.MethodPost, path: "/sandboxes/" + backend + "/connect",
		body: map[string]int64{"timeout": seconds(p.cfg.Timeout)},
		want: []int{http.StatusOK, http.StatusCreated}, limit: maxAnswer, into: &a,
	})
	if err == nil && a.ID != backend {
		err = errNotE2B
	}
	return a, translated("resume a sandbox", err)
}

// apiSimple makes a call that is answered without a body.
func (p *Provider) apiSimple(ctx context.Context, what, method, path string, body any) error {
	_, err := p.call(
		ctx,
		request{method: method, path: path, body: body, want: []int{http.StatusNoContent, http.StatusOK}},
	)
	return translated(what, err)
}

// apiList returns the sandboxes with all of these tags, running or paused, the oldest first. What the backend lists
// beside
// them is not ours to touch.
func (p *Provider) apiList(ctx context.Context, tags map[string]string) ([]described, error) {
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
	for range maxPages {
		var page []described
		header, err := p.call(ctx, request{
			method: http.MethodGet, path: "/v2/sandboxes", query: query, want: []int{http.StatusOK}, limit: maxPage, into: &page,
		})
		if err != nil {
			return nil, translated("list sandboxes", err)
		}
		for _, d := range page {
			if !d.has(tags) {
				continue
			}
			if err := d.check(); err != nil {
				return nil, err
			}
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
	return nil, providers.Errorf(providers.Internal, "E2B lists more than %d sandboxes", maxPages*pageSize)
}

func older(a, b described) int {
	if c := a.StartedAt.Compare(b.StartedAt); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}

func (d described) has(tags map[string]string) bool {
	for k, v := range tags {
		if d.Metadata[k] != v {
			return false
		}
	}
	return true
}

// seconds is a time as the API takes it: whole, at least one, and no more than it can hold.
func seconds(d time.Duration) int64 {
	const most = 1<<31 - 1
	return min(max(int64((d+time.Second-1)/time.Second), 1), most)
}
