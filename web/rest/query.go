package rest

import (
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humafiber"

	"sandyard/web/problem"
)

// checkQuery refuses query parameters that the operation does not know, that are repeated although it takes one, or
// that are empty: a filter that is silently left out answers another question.
func (a *API) checkQuery(ctx huma.Context, next func(huma.Context)) {
	u := ctx.URL()
	if err := CheckQuery(ctx.Operation().Parameters, u.Query()); err != nil {
		c := humafiber.Unwrap(ctx)
		if err := a.mw.WriteError(c, err); err != nil {
			a.log.WarnContext(ctx.Context(), "answer not written", "error", err)
		}
		return
	}
	next(ctx)
}

// CheckQuery says what is wrong with a query for an operation with these parameters.
func CheckQuery(params []*huma.Param, given map[string][]string) error {
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
			return problem.Invalid(
				"query."+name,
				"is unknown; the query parameters of this operation are "+strings.Join(names, ", "),
			)
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
