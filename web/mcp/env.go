package mcp

import (
	"context"
	"fmt"
	"strings"

	"sandyard/jobs"
)

type envSet struct {
	Name  string  `json:"name" jsonschema:"Name of the variable"`
	Value *string `json:"value,omitempty" jsonschema:"Its value; absent = remove the variable"`
	in
}

func (s *Server) envSet(ctx context.Context, c *call, a *envSet) (*answer, error) {
	job, err := s.onFile(ctx, c, a.Sandbox, &jobs.SetEnv{Env: map[string]*string{a.Name: a.Value}}, nil)
	if err != nil {
		return nil, err
	}
	text := "Removed " + a.Name + "."
	if a.Value != nil {
		text = "Set " + a.Name + " for later commands."
	}
	return &answer{text: text, fields: map[string]any{"name": a.Name, "sandbox_id": job.SandboxID}}, nil
}

type envGet struct {
	Name string `json:"name,omitempty" jsonschema:"Name of the variable; default all"`
	in
}

func (s *Server) envGet(ctx context.Context, c *call, a *envGet) (*answer, error) {
	box, err := s.sandbox(ctx, c, a.Sandbox)
	if err != nil {
		return nil, err
	}
	r, err := s.command(ctx, c, box.ID, &jobs.Exec{Command: "env -0"}, patience)
	if err != nil {
		return nil, err
	}
	all, text := map[string]string{}, ""
	for pair := range strings.SplitSeq(r.Stdout, "\x00") {
		name, value, ok := strings.Cut(pair, "=")
		if ok && name != "_" && (a.Name == "" || a.Name == name) {
			all[name] = value
			text += name + "=" + value + "\n"
		}
	}
	if text == "" {
		text = fmt.Sprintf("%s is not set.", a.Name)
	}
	return &answer{text: text, fields: map[string]any{"env": all, "sandbox_id": box.ID}}, nil
}
