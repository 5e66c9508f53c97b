package app

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
)

// Variable is one environment variable.
type Variable struct {
	Name, Default, Doc string
}

// Variables lists what the given configurations read, sorted by name.
func Variables(configs ...any) []Variable {
	var out []Variable
	for _, c := range configs {
		out = collect(reflect.TypeOf(c), out)
	}
	slices.SortFunc(out, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(out)
}

func collect(t reflect.Type, out []Variable) []Variable {
	for f := range t.Fields() {
		if f.Anonymous {
			out = collect(f.Type, out)
		} else if name := f.Tag.Get("env"); name != "" {
			out = append(out, Variable{name, f.Tag.Get("envDefault"), f.Tag.Get("doc")})
		}
	}
	return out
}

// Load reads a configuration from the environment and validates it.
func Load[C interface{ Validate() error }]() (C, error) {
	c, err := env.ParseAs[C]()
	if err != nil {
		return c, err
	}
	return c, c.Validate()
}

// PrintVariables writes a configuration's variables as a --help text.
func PrintVariables(w io.Writer, config any) {
	for _, v := range Variables(config) {
		fmt.Fprintf(w, "  %-22s %s", v.Name, v.Doc)
		if v.Default != "" {
			fmt.Fprintf(w, " (default %s)", v.Default)
		}
		fmt.Fprintln(w)
	}
}
