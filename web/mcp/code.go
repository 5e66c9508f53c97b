package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/providers/cells"
)

type codeExec struct {
	Code    string  `json:"code" jsonschema:"A cell; variables, imports and functions stay for the next one"`
	Timeout float64 `json:"timeout,omitempty" jsonschema:"Seconds until the cell is interrupted; default 300"`
	Wait    float64 `json:"wait,omitempty" jsonschema:"Seconds to wait for its end before the answer is running=true; default and most 20"`
	in
}

// cellRan is how a cell stands.
type cellRan struct {
	ran

	Results   []cells.Result `json:"results,omitempty"` // without pictures, which are content
	Error     *cells.Error   `json:"error,omitempty"`
	StateLost bool           `json:"state_lost,omitempty"`
}

func (s *Server) code(language string) func(context.Context, *call, *codeExec) (*answer, error) {
	return func(ctx context.Context, c *call, a *codeExec) (*answer, error) {
		box, err := s.sandbox(ctx, c, a.Sandbox)
		if err != nil {
			return nil, err
		}
		job, box, err := s.carry(ctx, c, box.ID, &jobs.Code{Language: language, Code: a.Code, TimeoutSeconds: a.Timeout, Merge: true}, waitOf(a.Wait))
		var goes *running
		if errors.As(err, &goes) {
			r, err := s.partOf(ctx, goes.job, cursor{})
			if err != nil {
				return nil, err
			}
			return r.answer(), nil
		}
		if err != nil {
			return nil, err
		}
		return s.cellEnded(ctx, job, box, cursor{})
	}
}

// cellEnded is the answer about a cell that has ended: its output behind the cursor, and what it has shown.
func (s *Server) cellEnded(ctx context.Context, job models.Job, box models.Sandbox, from cursor) (*answer, error) {
	if err := s.mw.Output(ctx, &job, models.OutputStdout, models.OutputStderr, models.OutputResult, models.OutputContent); err != nil {
		return nil, err
	}
	r, err := s.ended(ctx, job, box, from)
	if err != nil {
		return nil, err
	}
	var res jobs.CodeResult
	if err := json.Unmarshal(job.Result, &res); err != nil {
		return nil, fmt.Errorf("read the result of job %s: %w", job.ID, err)
	}
	if len(job.Content) > 0 {
		if err := json.Unmarshal(job.Content, &res.Results); err != nil {
			return nil, fmt.Errorf("read what job %s has shown: %w", job.ID, err)
		}
	}
	out := &answer{}
	cell := &cellRan{ran: *r, Error: res.Error, StateLost: res.StateLost}
	var b strings.Builder
	if r.TimedOut {
		b.WriteString("The cell reached its timeout and was interrupted.\n")
	}
	r.ExitCode, r.TimedOut = nil, false
	b.WriteString(r.text())
	room := maxHead
	for _, shown := range res.Results {
		cell.Results = append(cell.Results, out.show(&b, shown, &room))
	}
	if res.Error != nil {
		fmt.Fprintf(&b, "\n%s: %s\n%s", res.Error.Name, clip(res.Error.Value), clip(res.Error.Traceback))
	}
	if res.StateLost {
		b.WriteString("\nThe interpreter has ended with its variables; the next cell starts another one.")
	}
	if b.Len() == 0 {
		b.WriteString("The cell has ended without output.")
	}
	out.text, out.fields = b.String(), cell
	return out, nil
}

// maxImage bounds the pictures in an answer, in bytes of base64. The Python client takes events of 1 MiB.
const maxImage = 640 << 10

// show adds what a cell has shown to the answer: pictures as content, text within room.
func (a *answer) show(b *strings.Builder, r cells.Result, room *int) cells.Result {
	kept := cells.Result{Main: r.Main, Data: map[string]json.RawMessage{}}
	for media, raw := range r.Data {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		if picture, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); strings.HasPrefix(media, "image/") && media != "image/svg+xml" && err == nil {
			if a.imageBytes += len(text); a.imageBytes <= maxImage {
				a.images = append(a.images, &mcp.ImageContent{Data: picture, MIMEType: media})
			} else {
				fmt.Fprintf(b, "\n[a picture of %d bytes is too large for the answer; save it to a file]", len(picture))
			}
			continue
		}
		if media == "text/plain" {
			fmt.Fprintf(b, "\n%s", clip(text))
		}
		if len(raw) <= *room {
			kept.Data[media], *room = raw, *room-len(raw)
		}
	}
	return kept
}

// clip is text of a length that a model may read.
func clip(text string) string {
	if len(text) <= maxHead {
		return text
	}
	cut := []byte(text)
	return valid(cut[:whole(cut[:maxHead-maxTail])]) + "\n[…]\n" + valid(cut[len(cut)-maxTail:])
}

type pipInstall struct {
	Packages string  `json:"packages,omitempty" jsonschema:"Names of packages with versions, separated by spaces, such as requests==2.32.3 numpy"`
	File     string  `json:"requirements_file,omitempty" jsonschema:"A requirements file in the sandbox"`
	Upgrade  bool    `json:"upgrade,omitempty" jsonschema:"Install the newest versions"`
	Timeout  float64 `json:"timeout,omitempty" jsonschema:"Seconds until pip is killed; default 3600"`
	in
}

func (s *Server) pipInstall(ctx context.Context, c *call, a *pipInstall) (*answer, error) {
	argv := []string{"python3", "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off"}
	if a.Upgrade {
		argv = append(argv, "--upgrade")
	}
	if a.File != "" {
		argv = append(argv, "-r", a.File)
	}
	names := strings.Fields(a.Packages)
	for _, name := range names {
		if strings.HasPrefix(name, "-") {
			return nil, invalid("packages", "takes names of packages, not the option "+name+"; use shell_exec for options")
		}
	}
	if len(names) == 0 && a.File == "" {
		return nil, invalid("packages", "is missing; name packages, or give requirements_file")
	}
	return s.outward(ctx, c, a.Sandbox, &jobs.Exec{Argv: append(argv, names...), TimeoutSeconds: a.Timeout, Merge: true})
}
