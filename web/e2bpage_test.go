package web_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"sandyard/web"
)

// TestE2BInBrowsers: pages of any origin may call E2B's routes with a key of theirs, and no others.
func TestE2BInBrowsers(t *testing.T) {
	t.Parallel()
	r := newRig(t, hasty(0), func(c *web.Config) { c.MaxBody = 100 })
	said := func(h http.Header) (all []string) {
		for name, values := range h {
			if strings.HasPrefix(name, "Access-Control-") {
				all = append(all, name[len("Access-Control-"):]+": "+strings.Join(values, " | "))
			}
		}
		slices.Sort(all)
		return all
	}
	asked := []string{"Allow-Headers: *,Authorization", "Allow-Methods: GET,HEAD,POST,PUT,PATCH,DELETE", "Allow-Origin: *", "Expose-Headers: *", "Max-Age: 7200"}
	page, nobody := []string{"Origin", "https://app.example"}, []string{"Origin", "https://app.example", "Authorization", ""}
	asks := append(slices.Clone(nobody), "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "x-api-key,content-type")
	for name, c := range map[string]struct {
		method, path string
		body         any
		headers      []string
		status       int
		allowed      bool
	}{
		"asked":                {"OPTIONS", "/v2/sandboxes", nil, asks, 204, true},
		"asked, of one":        {"OPTIONS", "/sandboxes/sbnone/connect", nil, asks, 204, true},
		"asked, what is not":   {"OPTIONS", "/v3/templates", nil, asks, 204, true},
		"a list":               {"GET", "/v2/sandboxes", nil, page, 200, true},
		"without a key":        {"GET", "/v2/sandboxes", nil, nobody, 401, true},
		"a refusal":            {"GET", "/sandboxes/sbnone", nil, page, 404, true},
		"a large body":         {"POST", "/v2/sandboxes", strings.Repeat(" ", 101), page, 413, true},
		"one without a key":    {"POST", "/v2/sandboxes", strings.Repeat(" ", 101), nobody, 401, true}, // which is not read
		"what is not":          {"GET", "/volumes", nil, page, 501, true},
		"by a program":         {"GET", "/v2/sandboxes", nil, nil, 200, false},
		"asked, of our own":    {"OPTIONS", "/v1/sandboxes", nil, asks, 401, false},
		"our own":              {"GET", "/v1/sandboxes", nil, page, 200, false},
		"the operators' pages": {"GET", "/monitor/", nil, nobody, 401, false},
		"nothing of E2B's":     {"GET", "/elsewhere", nil, page, 404, false},
	} {
		a := r.call(c.method, c.path, c.body, c.headers...)
		var want []string
		switch {
		case c.allowed && c.method == "OPTIONS":
			want = asked
		case c.allowed:
			want = []string{"Allow-Origin: *", "Expose-Headers: *"}
		}
		got := slices.DeleteFunc(said(a.header), func(line string) bool { return c.method != "OPTIONS" && strings.HasPrefix(line, "Max-Age") })
		if a.status != c.status || !slices.Equal(got, want) {
			t.Errorf("%s: %d with %q, want %d with %q", name, a.status, got, c.status, want)
		}
	}
}
