// Package remote is what the providers have in common that reach their sandboxes over a vendor's API: bounded calls and
// what their refusals mean, the vendor's ids of sandboxes, files and directories by short scripts, and ports by HTTP.
//
// Whatever comes from a vendor is bounded and checked, and no text of it reaches a user.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sandyard/providers"
)

// Patience is how long one call of an API may take.
const Patience = 2 * time.Minute

const (
	dialPatience  = 10 * time.Second // of a connection and of its handshake
	maxHeaders    = 64 << 10
	idleClose     = 30 * time.Second
	maxErrorBody  = 64 << 10
	maxLogged     = 300 // bytes of a refusal in a log
	maxRetryAfter = time.Hour
)

// Background is ctx for what must be done although its caller has left.
func Background(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), Patience)
}

// Transport returns a client's transport that is bounded in all but the length of bodies. A server may take until
// answer from the end of a request to the first bytes of its answer.
func Transport(answer time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialPatience, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   dialPatience,
		ResponseHeaderTimeout: answer,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       idleClose,
		MaxIdleConnsPerHost:   64,

		MaxResponseHeaderBytes: maxHeaders,
		DisableCompression:     true, // ranges of files are of their own bytes
		ForceAttemptHTTP2:      true,
	}
}

// BaseURL reads a setting, such as example. Error: Invalid, which does not show the text.
func BaseURL(name, text, example string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(text, "/"))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		return nil, providers.Invalid.Errorf("%s must be a URL such as %s, without user and query", name, example)
	}
	return u, nil
}

// Printable says whether text can be a key or a token: visible ASCII alone.
func Printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// API is a vendor's, of JSON.
type API struct {
	Transport http.RoundTripper // which follows no redirect: the key is for this server alone
	Base      *url.URL
	Authorize func(http.Header)
	Foreign   *providers.Error // what an answer means that is none of this API
	Secret    string           // the tenant's whose value the key is; empty = it is the operator's
}

// Request is one call of an API.
type Request struct {
	Method string
	Path   string
	Query  url.Values
	Body   any
	Key    string // for Idempotency-Key
	Once   bool   // the transport must not repeat it by itself
	Want   []int  // statuses of success
	Limit  int64  // bytes of the answer
	Into   any    // nil = the answer is not read
}

// Call makes one call within Patience. The error is a *Refusal, the API's Foreign or one of the transport; Translated
// makes it a provider's.
func (a *API) Call(ctx context.Context, r Request) (http.Header, error) {
	ctx, stop := context.WithTimeout(ctx, Patience)
	defer stop()
	var body io.Reader
	if r.Body != nil {
		text, err := json.Marshal(r.Body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	to := *a.Base
	to.Path, to.RawQuery = to.Path+r.Path, r.Query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.Method, to.String(), body)
	if err != nil {
		return nil, err
	}
	a.Authorize(req.Header)
	req.Header.Set("Accept", "application/json")
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.Key != "" {
		req.Header.Set("Idempotency-Key", r.Key)
	}
	if r.Key != "" || r.Once {
		req.GetBody = nil // else the transport repeats it by itself, also for a server that does not know such keys
	}
	res, err := a.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if !slices.Contains(r.Want, res.StatusCode) {
		if res.StatusCode < http.StatusBadRequest {
			return nil, a.Foreign
		}
		refusal := ReadRefusal(res)
		refusal.Secret = a.Secret
		return nil, refusal
	}
	if r.Into == nil {
		return res.Header, nil
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, r.Limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > r.Limit || json.Unmarshal(text, r.Into) != nil:
		return nil, a.Foreign
	}
	return res.Header, nil
}

// Refusal is an answer of a backend that is an error.
type Refusal struct {
	Status     int
	Stated     int    // the status that its document states; 0 = none
	Message    string // of the backend: to be looked at, and for the log
	Code       string // the backend's name of the error
	Source     string // the part of the backend that says so
	Port       bool   // it is about a port on which nobody listens
	RetryAfter time.Duration
	Secret     string // whose value the key is that was sent; empty = it is the operator's
}

// Key is the class and the message of a refusal of the key to do what, or to do anything, and the operator's message.
func (r *Refusal) Key(vendor, what, operators string) (providers.Class, string) {
	if r.Secret == "" {
		return providers.Refused, operators
	}
	text := vendor + " does not take the key in your tenant's secret '" + r.Secret + "'"
	if what != "" {
		text = vendor + " does not let the account of your tenant's secret '" + r.Secret + "' " + what
	}
	return providers.KeyRefused, text + "; write a valid key with PUT /v1/secrets/" + r.Secret
}

// Plan says what to do where the account has too little.
func (r *Refusal) Plan() string {
	if r.Secret == "" {
		return "ask your operator for another plan"
	}
	return "choose another plan for the account of your tenant's secret '" + r.Secret + "'"
}

// Error is for the log: what could be a token is not in it.
func (r *Refusal) Error() string {
	return fmt.Sprintf("the backend answered %d %s: %s", r.Status, r.Code, Redact(r.Message))
}

// notJSON is the message of a refusal whose body is no document.
const notJSON = "no JSON"

var codes = regexp.MustCompile(`^[A-Za-z_]{1,64}$`)

var tokens = regexp.MustCompile(`[A-Za-z0-9_\-.=+/]{16,}`)

// Redact is the beginning of a text without what could be a token in it.
func Redact(text string) string {
	text = strings.ToValidUTF8(tokens.ReplaceAllString(text[:min(len(text), maxErrorBody)], "…"), "�")
	text = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), maxLogged)], "")
}

// ReadRefusal reads an answer that is an error. It leaves the body to be closed.
func ReadRefusal(res *http.Response) *Refusal {
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // what there is of it
	return RefusalOf(res, text)
}

// RefusalOf is ReadRefusal for an answer whose body was read.
func RefusalOf(res *http.Response, text []byte) *Refusal {
	r := &Refusal{Status: res.StatusCode, RetryAfter: retryAfter(res.Header)}
	var body struct {
		Message json.RawMessage `json:"message"` // a text, or a list of them
		Name    string          `json:"error_code"`
		Code    json.RawMessage `json:"code"` // a name or a number
		Status  json.RawMessage `json:"statusCode"`
		Source  string          `json:"source"`
		Port    json.RawMessage `json:"port"`
	}
	if json.Unmarshal(text, &body) != nil {
		r.Message = notJSON
		return r
	}
	r.Message = sentence(body.Message)
	for _, number := range []json.RawMessage{body.Status, body.Code} {
		if r.Stated == 0 && json.Unmarshal(number, &r.Stated) != nil {
			r.Stated = 0
		}
	}
	r.Port = len(body.Port) > 0 && string(body.Port) != "null" && string(body.Port) != "0"
	for _, name := range []string{body.Name, sentence(body.Code)} {
		if r.Code == "" && codes.MatchString(name) {
			r.Code = name
		}
	}
	if codes.MatchString(body.Source) {
		r.Source = body.Source
	}
	return r
}

func sentence(raw json.RawMessage) string {
	var text string
	var list []string
	if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &list) == nil {
		text = strings.Join(list, "; ")
	}
	return text
}

// retryAfter reads how long the backend wants to be left alone. Where several of its parts say so, the longest time
// counts.
func retryAfter(h http.Header) (longest time.Duration) {
	for name, values := range h {
		if name != "Retry-After" && !strings.HasPrefix(name, "Retry-After-") {
			continue
		}
		for _, text := range values {
			asked := wait(strings.TrimSpace(text), h.Get("Date"))
			if name == "Retry-After-Ms" {
				asked = wait(strings.TrimSpace(text)+"e-3", "")
			}
			longest = max(longest, asked)
		}
	}
	return longest
}

func wait(text, date string) time.Duration {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 {
		return time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	sent, err := http.ParseTime(date) // clocks differ
	if err != nil {
		sent = time.Now()
	}
	return max(0, min(at.Sub(sent), maxRetryAfter))
}

// Missing says whether a refusal is the backend's own document that something is not there, which states its status.
func (r *Refusal) Missing() bool { return r.Stated == r.Status && r.Absent() }

// Absent is Missing for a backend whose documents need not state their status. Whatever else comes with such a status,
// like a page or the word of a server that knows no such path, says nothing about a sandbox: the URL may be wrong, or a
// proxy's.
func (r *Refusal) Absent() bool {
	if r.Status != http.StatusNotFound && r.Status != http.StatusGone {
		return false
	}
	if r.Stated != 0 && r.Stated != r.Status || r.Stated == 0 && strings.EqualFold(r.Message, "not found") { // anybody's
		return false
	}
	return r.Message != "" && r.Message != notJSON && !noRoute.MatchString(r.Message)
}

// noRoute is how the vendors' servers say that they have nothing at a path.
var noRoute = regexp.MustCompile(`(?i)^cannot (get|head|post|put|patch|delete) |no matching operation|^page not found`)

// Says tells whether the backend's words hold all of some, which are in lower case.
func (r *Refusal) Says(words ...string) bool {
	text := strings.ToLower(r.Message)
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// Unavailable is the error of a call whose outcome is unknown.
func Unavailable(what string, cause error) *providers.Error {
	return &providers.Error{Class: providers.Unavailable, Message: what, Err: cause}
}

// Translated is the error of a call of a vendor's API to do what; class says what a refusal means and what to tell a
// user.
func Translated(vendor, what string, err error, class func(r *Refusal, what string) (providers.Class, string)) error {
	var own *providers.Error
	var r *Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	case errors.As(err, &r):
		e := &providers.Error{Err: r, RetryAfter: r.RetryAfter}
		e.Class, e.Message = class(r, what)
		return e
	}
	return Unavailable(vendor+" did not answer to "+what, Quiet(err))
}

// Quiet is the error of a transport without the URL that it names: a query may hold a signature.
func Quiet(err error) error {
	for _, known := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, known) {
			return known
		}
	}
	return errors.New(Redact(err.Error()))
}

// GivenUp says why a context has ended.
func GivenUp(ctx context.Context) error {
	if own, ok := errors.AsType[*providers.Error](context.Cause(ctx)); ok {
		return own
	}
	return Unavailable("the call was stopped before it ended", Quiet(context.Cause(ctx)))
}

// IsClass says whether err is of a class.
func IsClass(err error, class providers.Class) bool {
	return errors.Is(err, &providers.Error{Class: class})
}
