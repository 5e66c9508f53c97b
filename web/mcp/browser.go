package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/toolset"
	"sandyard/web/problem"
)

const (
	// browserProgram does one thing in the Chromium of the template browser, see images/browser.
	browserProgram = "sandyard-browser"
	// pageTimeout is how long a page has to load or an element to appear, in seconds. With maxPageTimeout a call still
	// ends within patience.
	pageTimeout    = 10
	maxPageTimeout = 15
	// browserTimeout ends a program that hangs, in seconds.
	browserTimeout = 60
	// maxPicture is how many bytes a picture has; as base64 it has toolset.MaxImage.
	maxPicture = toolset.MaxImage / 4 * 3
)

// browserTab is one tab.
type browserTab struct {
	Tab   string `json:"tab"`
	URL   string `json:"url"`
	Title string `json:"title"`
}

// browserSaid is what the program answers: where the browser is, and what the tool asked for.
type browserSaid struct {
	browserTab

	Status    int          `json:"status,omitempty"` // of the page, as in HTTP
	Text      string       `json:"text,omitempty"`
	Cut       bool         `json:"truncated,omitempty"` // text is only a part of it
	MediaType string       `json:"media_type,omitempty"`
	Bytes     int          `json:"bytes,omitempty"` // of the picture
	Version   string       `json:"version,omitempty"`
	Viewport  *viewport    `json:"viewport,omitempty"`
	Tabs      []browserTab `json:"tabs,omitempty"`
	VNC       *vnc         `json:"vnc,omitempty"`
	SandboxID string       `json:"sandbox_id"`

	Image []byte `json:"image,omitempty"` // is shown as content
	Error string `json:"error,omitempty"`
}

// viewport is the visible part of a page, in pixels.
type viewport struct {
	Width  int `json:"width"`
	Height int `json:"height"`
}

// vnc is where a person sees the screen.
type vnc struct {
	Port     int    `json:"port"`
	Path     string `json:"path"`
	Password string `json:"password"`
}

type browserOpen struct {
	URL     string  `json:"url" jsonschema:"URL of the page; a server in the sandbox is at http://localhost:PORT"`
	NewTab  bool    `json:"new_tab,omitempty" jsonschema:"Open it in a new tab"`
	Until   string  `json:"wait_until,omitempty" jsonschema:"load (default), domcontentloaded or networkidle"`
	Tab     string  `json:"tab,omitempty" jsonschema:"A tab that browser_info lists; default the one in front"`
	Timeout float64 `json:"timeout,omitempty" jsonschema:"Seconds for the page to load; default 10, at most 15"`
	in
}

type browserScreenshot struct {
	FullPage bool    `json:"full_page,omitempty" jsonschema:"The whole page, not only its visible part"`
	Selector string  `json:"selector,omitempty" jsonschema:"Only this element: a CSS selector, or text=Words"`
	Tab      string  `json:"tab,omitempty" jsonschema:"A tab that browser_info lists; default the one in front"`
	Timeout  float64 `json:"timeout,omitempty" jsonschema:"Seconds for the element to appear; default 10, at most 15"`
	in
}

type browserAction struct {
	Action   string   `json:"action_type" jsonschema:"navigate, back, forward, reload, click, double_click, right_click, move_to, type, fill, press, hotkey, scroll, wait, text, screenshot or close_tab"`
	Selector string   `json:"selector,omitempty" jsonschema:"The element: a CSS selector, or text=Words; or give x and y"`
	X        *float64 `json:"x,omitempty" jsonschema:"Pixels from the left of the page's visible part"`
	Y        *float64 `json:"y,omitempty" jsonschema:"Pixels from its top"`
	Text     string   `json:"text,omitempty" jsonschema:"For type, which adds it, and fill, which replaces the element's text by it"`
	Key      string   `json:"key,omitempty" jsonschema:"For press, such as Enter or PageDown"`
	Keys     []string `json:"keys,omitempty" jsonschema:"For hotkey, such as Control and a"`
	DeltaX   float64  `json:"delta_x,omitempty" jsonschema:"For scroll: pixels to the right"`
	DeltaY   float64  `json:"delta_y,omitempty" jsonschema:"For scroll: pixels down"`
	Duration float64  `json:"duration,omitempty" jsonschema:"For wait: seconds, at most 10; or give selector to wait for"`
	URL      string   `json:"url,omitempty" jsonschema:"For navigate"`
	Tab      string   `json:"tab,omitempty" jsonschema:"A tab that browser_info lists; default the one in front"`
	Timeout  float64  `json:"timeout,omitempty" jsonschema:"Seconds for the element to appear; default 10, at most 15"`
	in
}

// browserTools are the tools of a browser in a sandbox.
type browserTools struct{ *Server }

func (s *browserTools) browserOpen(ctx context.Context, c *call, a *browserOpen) (*answer, error) {
	return s.browse(ctx, c, a.Sandbox, "open", a, a.Timeout, func() error {
		if a.Until != "" && !slices.Contains([]string{"load", "domcontentloaded", "networkidle"}, a.Until) {
			return invalid("wait_until", "must be load, domcontentloaded or networkidle")
		}
		return pageURL(a.URL)
	})
}

func (s *browserTools) browserInfo(ctx context.Context, c *call, a *sandboxOnly) (*answer, error) {
	return s.browse(ctx, c, a.Sandbox, "info", a, 0, func() error { return nil })
}

func (s *browserTools) browserScreenshot(ctx context.Context, c *call, a *browserScreenshot) (*answer, error) {
	return s.browse(ctx, c, a.Sandbox, "screenshot", a, a.Timeout, func() error { return nil })
}

func (s *browserTools) browserAction(ctx context.Context, c *call, a *browserAction) (*answer, error) {
	return s.browse(ctx, c, a.Sandbox, "action", a, a.Timeout, func() error {
		if a.Action == "navigate" {
			return pageURL(a.URL)
		}
		return nil
	})
}

// pageURL refuses what is no address of a page. Scripts are for the page's own.
func pageURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || !slices.Contains([]string{"http", "https", "file", "data", "about"}, u.Scheme) {
		return invalid("url", "must be a whole URL, such as http://localhost:8000/")
	}
	return nil
}

// browse has the browser of a sandbox do something, as a command's job.
func (s *browserTools) browse(
	ctx context.Context, c *call, sandboxID, do string, args any, timeout float64, check func() error,
) (*answer, error) {
	box, err := s.sandbox(ctx, c, sandboxID)
	if err == nil {
		err = check()
	}
	if err == nil && (timeout < 0 || timeout > maxPageTimeout) {
		err = invalid("timeout", fmt.Sprintf("must be between 1 and %d", maxPageTimeout))
	}
	if err != nil {
		return nil, err
	}
	if timeout == 0 {
		timeout = pageTimeout
	}
	asked, err := asking(args, map[string]any{"do": do, "timeout": timeout, "most": maxPicture})
	if err != nil {
		return nil, err
	}
	exec := &kind.Exec{
		Argv: []string{
			browserProgram,
		}, Stdin: string(asked), TimeoutSeconds: browserTimeout, MaxOutputBytes: toolset.KeptOutput,
	}
	job, box, err := s.carry(ctx, c, box.ID, exec, patience)
	var goes *running
	switch {
	case errors.As(err, &goes):
		return nil, problem.RetryLater(problem.New(http.StatusServiceUnavailable, "browser_busy", "the browser has not done "+
			"this within the time of a call; job "+goes.job.ID+" goes on: look with browser_info or browser_screenshot"), 2)
	case err != nil:
		return nil, err
	case job.Error != nil && job.Error.Code == string(providers.NoCommand):
		return nil, problem.New(http.StatusUnprocessableEntity, "no_browser", "sandbox "+box.ID+" has no browser; add "+
			"?template=browser to the server's URL with another ?session=, or make one with sandbox_create and template "+
			"browser, and give its id as sandbox")
	}
	return s.browsed(ctx, job, box)
}

// asking is what the program reads: the tool's arguments and more.
func asking(args any, more map[string]any) ([]byte, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	ask := map[string]any{}
	if err := json.Unmarshal(raw, &ask); err != nil {
		return nil, err
	}
	maps.Copy(ask, more)
	return json.Marshal(ask)
}

// browsed is the answer about a program that has ended.
func (s *browserTools) browsed(ctx context.Context, job models.Job, box models.Sandbox) (*answer, error) {
	if job.State != models.Succeeded {
		return nil, s.failure(job, box)
	}
	if err := s.mw.Output(ctx, &job, models.OutputStdout, models.OutputStderr, models.OutputResult); err != nil {
		return nil, err
	}
	var said browserSaid
	if json.Unmarshal(job.Stdout, &said) != nil {
		said.Error = "the browser's program ended without an answer: " + toolset.Clip(toolset.Valid(job.Stderr))
	}
	if said.Error != "" {
		detail := said.Error
		if strings.Contains(detail, "ERR_PROXY") || strings.Contains(detail, "ERR_TUNNEL") {
			detail += policyHint(box)
		}
		return nil, problem.New(http.StatusUnprocessableEntity, "browser_failed", detail)
	}
	return said.answer(box.ID), nil
}

func (b *browserSaid) answer(sandboxID string) *answer {
	b.SandboxID = sandboxID
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n%s\n", b.Title, b.URL)
	if b.Status != 0 {
		fmt.Fprintf(&text, "HTTP status %d\n", b.Status)
	}
	for _, t := range b.Tabs {
		fmt.Fprintf(&text, "tab %s: %s %s\n", t.Tab, t.URL, t.Title)
	}
	if b.VNC != nil {
		fmt.Fprintf(&text, "A person sees the screen at port %d, path %s (port_url), with the password %s.\n",
			b.VNC.Port, b.VNC.Path, b.VNC.Password)
	}
	if b.Text != "" {
		whole := len(b.Text)
		b.Text = toolset.Clip(b.Text)
		b.Cut = len(b.Text) < whole
		fmt.Fprintf(&text, "\n%s", b.Text)
	}
	out := &answer{Fields: b}
	if len(b.Image) > 0 {
		out.Images = []*mcp.ImageContent{{Data: b.Image, MIMEType: b.MediaType}}
		fmt.Fprintf(&text, "[a picture of %d bytes]", b.Bytes)
		b.Image = nil
	}
	out.Text = text.String()
	return out
}
