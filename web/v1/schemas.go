package v1

import (
	"maps"
	"reflect"
	"strings"

	"sandyard/jobs/kind"

	"github.com/danielgtaylor/huma/v2"
)

// refineSchemas says in the document what Go's types do not: which result a job of each kind has, what may be null, and
// that lists are never null.
func refineSchemas(api *huma.OpenAPI) {
	schemas := api.Components.Schemas
	for _, s := range schemas.Map() {
		eachArray(s, func(array *huma.Schema) { array.Nullable = false })
	}
	if cell := schemas.Map()["CodeResult"]; cell != nil {
		cell.Properties["error"] = &huma.Schema{
			Description: "null if the cell completed",
			AnyOf:       []*huma.Schema{cell.Properties["error"], {Type: "null"}},
		}
	}
	refineJobs(schemas)
}

func eachArray(s *huma.Schema, do func(*huma.Schema)) {
	if s == nil {
		return
	}
	if s.Type == huma.TypeArray {
		do(s)
	}
	eachArray(s.Items, do)
	for _, p := range s.Properties {
		eachArray(p, do)
	}
	if values, ok := s.AdditionalProperties.(*huma.Schema); ok {
		eachArray(values, do)
	}
}

// refineJobs makes Job one of several schemas, told apart by kind: JobBase with the kind's result. JobFields is a job
// of which only some fields were asked for.
func refineJobs(schemas huma.Registry) {
	all := schemas.Map()
	job := all["Job"]
	base := *job
	base.Properties = maps.Clone(job.Properties)
	base.AdditionalProperties = true // the result, which the schemas that build on it describe
	delete(base.Properties, "result")
	fields := *job
	fields.Required, fields.Description = nil, "A job with only the fields that the parameter fields names"
	all["JobBase"], all["JobFields"] = &base, &fields

	all["JobPage"].Properties["jobs"].Items = jobOrFields()

	const prefix = "#/components/schemas/"
	one := &huma.Schema{
		Description:   job.Description,
		Discriminator: &huma.Discriminator{PropertyName: "kind", Mapping: map[string]string{}},
	}
	results := kind.Results()
	for _, kind := range kind.Names() {
		name := schemaOf(kind)
		all[name] = jobOf(kind, resultSchema(schemas, results[kind]))
		one.OneOf = append(one.OneOf, &huma.Schema{Ref: prefix + name})
		one.Discriminator.Mapping[kind] = prefix + name
	}
	all["Job"] = one
}

// jobOrFields is a whole job, or what the parameter fields leaves of one.
func jobOrFields() *huma.Schema {
	return &huma.Schema{AnyOf: []*huma.Schema{{Ref: "#/components/schemas/Job"}, {Ref: "#/components/schemas/JobFields"}}}
}

// schemaOf is the name of the schema of a kind of job, such as WriteManyJob.
func schemaOf(kind string) string {
	var name strings.Builder
	for _, part := range strings.FieldsFunc(kind, func(r rune) bool { return r == '-' || r == '_' }) {
		name.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return name.String() + "Job"
}

func jobOf(kind string, result *huma.Schema) *huma.Schema {
	own := &huma.Schema{
		Type: huma.TypeObject, Required: []string{"kind"}, AdditionalProperties: true,
		Properties: map[string]*huma.Schema{"kind": {Type: huma.TypeString, Enum: []any{kind}}},
	}
	if result != nil {
		own.Properties["result"] = result
	}
	return &huma.Schema{AllOf: []*huma.Schema{{Ref: "#/components/schemas/JobBase"}, own}}
}

func resultSchema(schemas huma.Registry, types []reflect.Type) *huma.Schema {
	refs := make([]*huma.Schema, len(types))
	for i, t := range types {
		refs[i] = schemas.Schema(t, true, t.Name())
	}
	switch len(refs) {
	case 0:
		return nil
	case 1:
		return refs[0]
	}
	return &huma.Schema{AnyOf: refs}
}
