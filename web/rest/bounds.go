package rest

import (
	"cmp"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gofiber/fiber/v2"

	"sandyard/web/problem"
)

// Bounds of what requests may hold, where a field's tags say nothing else. Both huma and the published document know
// them.
const (
	maxText  = 4096        // characters of a text of no other kind
	maxItems = 1000        // of an array
	maxNames = 1000        // of a map
	maxArg   = 128<<10 - 1 // what Linux lets one argument or variable have
)

// idPattern is the form of ids: a prefix and 26 characters of a UUID.
func idPattern(prefix string) string { return "^" + prefix + "[0-9a-v]{26}$" }

// textBounds are the bounds of texts by the name of their field. A map's values have the name of the map.
func textBounds(maxBody int) map[string]int {
	bounds := map[string]int{
		"command": maxArg, "argv": maxArg, "env": maxArg, "labels": 256, "fields": 64, "label": 512, "allow": 300,
		"deny":  300,
		"image": 512, "template": 128, "name": 128, "provider": 64, "runtime": 64, "key": 256, "kind": 64, "signal": 32,
		"mode": 16,
		"user": 256, "reason": 1024, "callback_url": 2048, "Idempotency-Key": 255, "wait": 32, "group_by": 16,
	}
	for _, large := range []string{"content", "stdin", "data", "code", "old_string", "new_string", "context_tar"} {
		bounds[large] = maxBody
	}
	return bounds
}

// bounder puts bounds into schemas.
type bounder struct {
	registry huma.Registry
	texts    map[string]int
	seen     map[*huma.Schema]bool
}

func (b *bounder) bound(name string, s *huma.Schema) {
	for s.Ref != "" {
		s = b.registry.SchemaFromRef(s.Ref)
	}
	if b.seen[s] {
		return
	}
	b.seen[s] = true
	switch s.Type {
	case huma.TypeString:
		b.boundText(name, s)
	case huma.TypeArray:
		s.MaxItems = cmp.Or(s.MaxItems, new(maxItems))
		b.bound(name, s.Items)
	case huma.TypeObject:
		b.boundObject(name, s)
	}
	s.PrecomputeMessages()
}

func (b *bounder) boundText(name string, s *huma.Schema) {
	if name == "sandbox_id" && s.Pattern == "" {
		s.Pattern, s.PatternDescription = idPattern("sb"), "a sandbox's id"
	}
	if s.MaxLength == nil && len(s.Enum) == 0 && s.Format != "date-time" {
		s.MaxLength = new(cmp.Or(b.texts[name], maxText))
	}
}

func (b *bounder) boundObject(name string, s *huma.Schema) {
	for field, schema := range s.Properties {
		b.bound(field, schema)
	}
	values, typed := s.AdditionalProperties.(*huma.Schema)
	if typed {
		b.bound(name, values)
	}
	if open, any := s.AdditionalProperties.(bool); typed || any && open {
		s.MaxProperties = cmp.Or(s.MaxProperties, new(maxNames))
	}
}

// Bound gives everything that an operation takes a bound. It comes after all operations and before the first
// request.
func (a *API) Bound() {
	api := a.OpenAPI()
	b := &bounder{registry: api.Components.Schemas, texts: textBounds(a.mw.MaxBody), seen: map[*huma.Schema]bool{}}
	for path, item := range api.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Delete, item.Patch} {
			if op != nil {
				b.boundOperation(path, op)
			}
		}
	}
}

func (b *bounder) boundOperation(path string, op *huma.Operation) {
	for _, p := range op.Parameters {
		if p.In == "path" {
			boundID(path, p)
		}
		b.bound(p.Name, p.Schema)
	}
	if op.RequestBody == nil {
		return
	}
	for media, content := range op.RequestBody.Content {
		if content.Schema != nil && strings.HasSuffix(media, "json") {
			b.bound("", content.Schema)
		}
	}
}

// boundID gives an id of a path the pattern of what stands before it.
func boundID(path string, p *huma.Param) {
	_, after, _ := strings.Cut(path, "/v1/")
	prefix := map[string]string{"sandboxes": "sb", "jobs": "job_", "schedules": "sch_"}
	before, _, _ := strings.Cut(after, "/{"+p.Name+"}")
	what := before[strings.LastIndex(before, "/")+1:]
	switch {
	case p.Name == "id" && what == "builds":
		p.Schema.Pattern = idPattern("bld_")
	case p.Name == "id" && prefix[what] != "":
		p.Schema.Pattern = idPattern(prefix[what])
	}
}

// Args checks what is inside a body, and of which kind only the body says.
type Args struct {
	registry huma.Registry
	kinds    map[string]*huma.Schema
}

// Args returns a check of args, whose Go types are given by kind, with the bounds of a request.
func (a *API) Args(kinds map[string]reflect.Type) *Args {
	args := &Args{registry: huma.NewMapRegistry("#/", huma.DefaultSchemaNamer), kinds: map[string]*huma.Schema{}}
	b := &bounder{registry: args.registry, texts: textBounds(a.mw.MaxBody), seen: map[*huma.Schema]bool{}}
	for kind, t := range kinds {
		args.kinds[kind] = args.registry.Schema(t, false, kind)
		b.bound("", args.kinds[kind])
	}
	return args
}

// Check refuses args that an operation of that kind would refuse; at is where they stand in the request.
func (a *Args) Check(at, kind string, args map[string]any) error {
	schema := a.kinds[kind]
	if schema == nil || args == nil {
		return nil
	}
	path, res := huma.NewPathBuffer(nil, 0), &huma.ValidateResult{}
	path.Push(at)
	huma.Validate(a.registry, schema, path, huma.ModeWriteToServer, args, res)
	if len(res.Errors) == 0 {
		return nil
	}
	m := &huma.ErrorModel{Status: fiber.StatusUnprocessableEntity}
	for _, err := range res.Errors {
		m.Add(err)
	}
	return problem.OfHuma(m)
}
