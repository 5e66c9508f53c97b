// Package imageref reads names of container images. It is the only parser of them: the API uses it when an image is
// named, and a provider uses it again before it asks its engine.
package imageref

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
)

const (
	maxBytes = 512
	// shortID is the length of an id as engines print it. A word of hexadecimal digits that is shorter is a name.
	shortID = 12
	// reserved cannot be a repository: "sha256:abc" would be a prefix of an id to an engine.
	reserved = "docker.io/library/sha256"
	advice   = "write REPOSITORY:TAG, such as python:3.12-slim or ghcr.io/acme/tools:1"
)

// Name is the name of an image, with a tag or a digest.
type Name struct{ ref reference.Named }

// Parse reads a name as docker pull does. It refuses ids of images, and everything that is not a name.
func Parse(text string) (Name, error) {
	switch {
	case text == "":
		return Name{}, errors.New("the image has no name; " + advice)
	case len(text) > maxBytes:
		return Name{}, fmt.Errorf("%.60q… is longer than %d bytes; %s", text, maxBytes, advice)
	case strings.Contains(text, ".."):
		return Name{}, notAName(text)
	case isID(text):
		return Name{}, fmt.Errorf("%.80q is the id of an image, not its name; %s", text, advice)
	}
	ref, err := reference.ParseNormalizedNamed(text)
	if err != nil || ref.Name() == reserved {
		return Name{}, notAName(text)
	}
	return Name{reference.TagNameOnly(ref)}, nil
}

func notAName(text string) error {
	return fmt.Errorf("%.80q is not the name of an image; %s", text, advice)
}

func isID(text string) bool {
	hex, prefixed := strings.CutPrefix(text, "sha256:")
	return strings.Trim(hex, "0123456789abcdef") == "" && (prefixed || len(hex) >= shortID)
}

// Full is the whole name, such as docker.io/library/python:3.12. It holds a slash, so no engine takes it for an id.
func (n Name) Full() string { return n.ref.String() }

// String is the name as people write it, such as python:3.12.
func (n Name) String() string { return reference.FamiliarString(n.ref) }

// Repository is the name as people write it without tag and digest.
func (n Name) Repository() string { return reference.FamiliarName(n.ref) }

// Is says whether the text names the same image.
func (n Name) Is(text string) bool {
	other, err := Parse(text)
	return err == nil && other.Full() == n.Full()
}

// Among says whether one of the names, as an engine lists them, is this one.
func (n Name) Among(names []string) bool {
	return slices.ContainsFunc(names, n.Is)
}
