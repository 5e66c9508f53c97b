package web

import (
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humafiber"

	"sandyard/models"
	"sandyard/web/problem"
)

// checkQuery refuses query parameters that the operation does not know, that are repeated although it takes one, or that are
// empty: a filter that is silently left out answers another question.
func (s *Server) checkQuery(ctx huma.Context, next func(huma.Context)) {
	u := ctx.URL()
	if err := wrongQuery(ctx.Operation().Parameters, u.Query()); err != nil {
		c := humafiber.Unwrap(ctx)
		if err := s.mw.WriteError(c, err); err != nil {
			s.log.WarnContext(ctx.Context(), "answer not written", "error", err)
		}
		return
	}
	next(ctx)
}

func wrongQuery(params []*huma.Param, given map[string][]string) error {
	known := map[string]*huma.Param{}
	var names []string
	for _, p := range params {
		if p.In == "query" {
			known[p.Name], names = p, append(names, p.Name)
		}
	}
	slices.Sort(names)
	for name, values := range given {
		p := known[name]
		switch {
		case p == nil && len(names) == 0:
			return problem.Invalid("query."+name, "is unknown; this operation takes no query parameters")
		case p == nil:
			return problem.Invalid("query."+name, "is unknown; the query parameters of this operation are "+strings.Join(names, ", "))
		case len(values) > 1 && !repeatable(p):
			return problem.Invalid("query."+name, "is given more than once; send it once")
		case slices.Contains(values, "") && !p.Required:
			return problem.Invalid("query."+name, "is empty; give it a value or leave it out")
		}
	}
	return nil
}

func repeatable(p *huma.Param) bool {
	return p.Schema != nil && p.Schema.Type == huma.TypeArray && (p.Explode == nil || *p.Explode)
}

func liveStates() []models.SandboxState {
	return []models.SandboxState{models.SandboxCreating, models.SandboxRunning, models.SandboxPaused, models.SandboxDeleting}
}

// onlyLive says whether none of the states is one of ended sandboxes; no states are all.
func onlyLive(states []models.SandboxState) bool {
	return len(states) > 0 && !slices.ContainsFunc(states, func(s models.SandboxState) bool { return !slices.Contains(liveStates(), s) })
}

// sandboxStates reads the parameter state of a list of sandboxes: states, or words for several of them. Without it the list
// holds the live ones.
func sandboxStates(given []string) ([]models.SandboxState, error) {
	live, ended := liveStates(), []models.SandboxState{models.SandboxDeleted, models.SandboxFailed, models.SandboxLost}
	if len(given) == 0 {
		return live, nil
	}
	var states []models.SandboxState
	for _, word := range strings.Split(strings.Join(given, ","), ",") {
		switch state := models.SandboxState(word); {
		case word == "all":
			return nil, nil
		case word == "live":
			states = append(states, live...)
		case word == "ended":
			states = append(states, ended...)
		case slices.Contains(live, state), slices.Contains(ended, state):
			states = append(states, state)
		default:
			return nil, problem.Invalid("query.state", fmt.Sprintf("has %q; use all, live, ended or any of creating, running, paused, deleting, deleted, "+
				"failed, lost, with commas between them", word))
		}
	}
	return states, nil
}
