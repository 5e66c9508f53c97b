package mcp

import (
	"context"
	"fmt"
	"time"

	"sandyard/jobs/kind"
	"sandyard/models"
)

type sandboxOnly struct{ in }

// boxDoc describes a sandbox.
type boxDoc struct {
	ID        string            `json:"id"`
	State     string            `json:"state"`
	Template  string            `json:"template,omitempty"`
	Key       string            `json:"key,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Network   bool              `json:"network"` // it may connect to something
	CreatedAt time.Time         `json:"created_at"`
	ExpiresAt time.Time         `json:"expires_at"` // by its timeout
	IdleAfter float64           `json:"idle_timeout_seconds,omitempty"`
	EndReason string            `json:"end_reason,omitempty"`
}

func describe(box models.Sandbox) boxDoc {
	doc := boxDoc{
		ID: box.ID, State: string(box.State), Labels: box.Labels, Network: len(box.Egress) > 0,
		CreatedAt: box.CreatedAt.UTC(), ExpiresAt: box.ExpiresAt.UTC(),
		IdleAfter: (time.Duration(box.IdleTimeoutMS) * time.Millisecond).Seconds(),
	}
	if box.Template != nil {
		doc.Template = *box.Template
	}
	if box.Key != nil {
		doc.Key = *box.Key
	}
	if box.EndReason != nil {
		doc.EndReason = *box.EndReason
	}
	return doc
}

func (s *Server) sandboxGet(ctx context.Context, c *call, a *sandboxOnly) (*answer, error) {
	box, err := s.sandbox(ctx, c, a.Sandbox)
	if err != nil {
		return nil, err
	}
	doc := describe(box)
	return &answer{Text: fmt.Sprintf("Sandbox %s of template %s is %s and ends at %s, or after %g seconds without use.",
		doc.ID, doc.Template, doc.State, doc.ExpiresAt.Format(time.RFC3339), doc.IdleAfter), Fields: doc}, nil
}

type portURL struct {
	Port    int     `json:"port" jsonschema:"1 to 65535"`
	Public  bool    `json:"public,omitempty" jsonschema:"Everyone with the URL may connect; default: the URL holds a token"`
	Seconds float64 `json:"expires_in_seconds,omitempty" jsonschema:"Default 3600, at most 86400"`
	in
}

func (s *Server) portURL(ctx context.Context, c *call, a *portURL) (*answer, error) {
	var res kind.PortResult
	job, err := s.inSandbox(
		ctx,
		c,
		a.Sandbox,
		&kind.Port{Port: a.Port, Public: a.Public, ExpiresInSeconds: a.Seconds},
		nil,
	)
	if err != nil {
		return nil, err
	}
	if res, err = s.c.Port(job); err != nil {
		return nil, err
	}
	state := "Nothing listens there yet."
	if res.Listening {
		state = "A program listens there."
	}
	return &answer{Text: res.URL + "\n" + state, Fields: res}, nil
}
