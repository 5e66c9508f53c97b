// Package dockerfile reads how an image is to be made, a Dockerfile or a script, and turns it into the steps that a
// provider carries out. Of Dockerfiles it knows one stage without mounts and downloads, for a build has no network;
// whatever else one asks for is refused by name.
package dockerfile

import (
	"fmt"
	"strings"

	"sandyard/providers"
)

// Recipe says how an image is made. Exactly one of Dockerfile, Script and Image is set.
type Recipe struct {
	Dockerfile string `json:"dockerfile,omitempty"`
	Script     string `json:"script,omitempty"`
	Image      string `json:"image,omitempty"`
	From       string `json:"from,omitempty"` // what a script runs on
}

// Error is what is wrong with a recipe.
type Error struct {
	Line    int // of the Dockerfile; 0 = none
	Message string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Message)
}

// Base is the image that the recipe stands on.
func (r Recipe) Base() (string, error) {
	switch {
	case r.Dockerfile != "":
		d, err := parse(r.Dockerfile)
		if err != nil {
			return "", err
		}
		image, _, _, err := d.base()
		return image, err
	case r.Script != "":
		return r.From, nil
	}
	return r.Image, nil
}

// Check says what is wrong with the recipe as far as that can be told without its base image.
func (r Recipe) Check(files []byte) error {
	set := 0
	for _, text := range []string{r.Dockerfile, r.Script, r.Image} {
		if strings.ContainsRune(text, 0) {
			return &Error{Message: "a recipe must not contain NUL characters"}
		}
		if text != "" {
			set++
		}
	}
	if set != 1 {
		return &Error{Message: "give exactly one of dockerfile, script and image"}
	}
	if r.From != "" && r.Script == "" {
		return &Error{Message: "from can be used only with script"}
	}
	_, err := r.plan(providers.ImageConfig{}, files, false)
	return err
}

// Plan is what to do to a base image, and what the result then says of itself.
type Plan struct {
	Steps  []providers.Step
	Config providers.ImageConfig
	Labels map[string]string
}

// Plan turns the recipe into steps. Files is a tar of what it may copy into the image; a script finds it unpacked in
// its directory.
func (r Recipe) Plan(on providers.ImageConfig, files []byte) (Plan, error) {
	return r.plan(on, files, true)
}

// plan leaves the files of the steps out where they are not kept.
func (r Recipe) plan(on providers.ImageConfig, archive []byte, keep bool) (Plan, error) {
	context, err := readContext(archive, keep)
	if err != nil {
		return Plan{}, err
	}
	switch {
	case r.Dockerfile != "":
		d, err := parse(r.Dockerfile)
		if err != nil {
			return Plan{}, err
		}
		return compile(d, on, context)
	case r.Script != "":
		return script(r.Script, on, context)
	}
	return Plan{Config: on}, nil
}

// scriptDir is where a script finds its files. It is in /tmp, which sandboxes begin without.
const scriptDir = "/tmp/build"

func script(text string, on providers.ImageConfig, context *files) (Plan, error) {
	unpack, err := context.under(scriptDir, ownership{})
	if err != nil {
		return Plan{}, &Error{Message: err.Error()}
	}
	return Plan{Config: on, Steps: []providers.Step{
		{
			Text:  "the setup script",
			Files: unpack,
			Dir:   scriptDir,
			User:  "0:0",
			Env:   map[string]string{"HOME": "/root"},
			Argv: []string{
				"/bin/sh",
				"-c",
				"if command -v bash >/dev/null; then exec bash -e -c \"$0\"; fi; exec sh -e -c \"$0\"",
				text,
			},
		},
	}}, nil
}
