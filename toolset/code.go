package toolset

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sandyard/providers/codecontext"
)

type codeExec struct {
	Code    string  `json:"code" jsonschema:"A cell; variables, imports and functions stay for the next one"`
	Timeout float64 `json:"timeout,omitempty" jsonschema:"Seconds until the cell is interrupted; default 300"`
	Wait    float64 `json:"wait,omitempty" jsonschema:"Seconds to wait for its end before the answer is running=true; default and most 20"`
}

func codeTools() []Tool {
	const python = "Run Python in an interpreter that keeps its variables; returns output, the last expression and figures"
	return []Tool{
		define("python_exec", python, Changes, code(codecontext.Python)),
		define("python_execute", python+"; the same as python_exec", Changes, code(codecontext.Python)),
		define(
			"javascript_execute",
			"Run JavaScript in Node.js, which keeps its variables",
			Changes,
			code(codecontext.JavaScript),
		),
		define("pip_install", "Install Python packages with pip, under the sandbox's egress policy", Adds, pipInstall),
	}
}

func code(language string) func(context.Context, Box, *codeExec) (*Answer, error) {
	return func(ctx context.Context, b Box, a *codeExec) (*Answer, error) {
		return b.Code(ctx, language, a.Code, a.Timeout, Wait(a.Wait))
	}
}

// Cell is what a cell has shown beside its output.
type Cell struct {
	Results   []codecontext.Result
	Error     *codecontext.Error
	StateLost bool
}

// cellRan is how a cell stands.
type cellRan struct {
	Ran

	Results   []codecontext.Result `json:"results,omitempty"` // without pictures, which are content
	Error     *codecontext.Error   `json:"error,omitempty"`
	StateLost bool                 `json:"state_lost,omitempty"`
}

// Answer is the answer about a cell that has ended.
func (c Cell) Answer(r *Ran) *Answer {
	out := &Answer{}
	cell := &cellRan{Ran: *r, Error: c.Error, StateLost: c.StateLost}
	var b strings.Builder
	if r.TimedOut {
		b.WriteString("The cell reached its timeout and was interrupted.\n")
	}
	shown := *r
	shown.ExitCode, shown.TimedOut = nil, false
	b.WriteString(shown.Text())
	room := MaxHead
	for _, one := range c.Results {
		cell.Results = append(cell.Results, out.show(&b, one, &room))
	}
	if c.Error != nil {
		fmt.Fprintf(&b, "\n%s: %s\n%s", c.Error.Name, Clip(c.Error.Value), Clip(c.Error.Traceback))
	}
	if c.StateLost {
		b.WriteString("\nThe interpreter has ended with its variables; the next cell starts another one.")
	}
	if b.Len() == 0 {
		b.WriteString("The cell has ended without output.")
	}
	out.Text, out.Fields = b.String(), cell
	return out
}

// MaxImage bounds the pictures in an answer, in bytes of base64. The Python client takes events of 1 MiB.
const MaxImage = 640 << 10

// AddImage adds a picture if there is room for it.
func (a *Answer) AddImage(data []byte, media string) bool {
	if a.imageBytes += base64.StdEncoding.EncodedLen(len(data)); a.imageBytes > MaxImage {
		return false
	}
	a.Images = append(a.Images, &mcp.ImageContent{Data: data, MIMEType: media})
	return true
}

// show adds what a cell has shown to the answer: pictures as content, text within room.
func (a *Answer) show(b *strings.Builder, r codecontext.Result, room *int) codecontext.Result {
	kept := codecontext.Result{Main: r.Main, Data: map[string]json.RawMessage{}}
	for media, raw := range r.Data {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		picture, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if strings.HasPrefix(media, "image/") && media != "image/svg+xml" && err == nil {
			if !a.AddImage(picture, media) {
				fmt.Fprintf(b, "\n[a picture of %d bytes is too large for the answer; save it to a file]", len(picture))
			}
			continue
		}
		if media == "text/plain" {
			fmt.Fprintf(b, "\n%s", Clip(text))
		}
		if len(raw) <= *room {
			kept.Data[media], *room = raw, *room-len(raw)
		}
	}
	return kept
}

type pipInstallArgs struct {
	Packages string  `json:"packages,omitempty" jsonschema:"Names of packages with versions, separated by spaces, such as requests==2.32.3 numpy"`
	File     string  `json:"requirements_file,omitempty" jsonschema:"A requirements file in the sandbox"`
	Upgrade  bool    `json:"upgrade,omitempty" jsonschema:"Install the newest versions"`
	Timeout  float64 `json:"timeout,omitempty" jsonschema:"Seconds until pip is killed; default 3600"`
}

func pipInstall(ctx context.Context, b Box, a *pipInstallArgs) (*Answer, error) {
	argv := []string{
		"python3",
		"-m",
		"pip",
		"install",
		"--disable-pip-version-check",
		"--no-input",
		"--progress-bar=off",
	}
	if a.Upgrade {
		argv = append(argv, "--upgrade")
	}
	if a.File != "" {
		argv = append(argv, "-r", a.File)
	}
	names := strings.Fields(a.Packages)
	for _, name := range names {
		if strings.HasPrefix(name, "-") {
			return nil, Invalid(
				"packages",
				"takes names of packages, not the option %s; use shell_exec for options",
				name,
			)
		}
	}
	if len(names) == 0 && a.File == "" {
		return nil, Invalid("packages", "is missing; name packages, or give requirements_file")
	}
	return outward(ctx, b, Command{Argv: append(argv, names...), Timeout: a.Timeout})
}
