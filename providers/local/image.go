package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sandyard/imageref"
	"sandyard/providers"
)

// image is an unpacked image: images/NAME/tree is its root file system and images/NAME/env its environment, one
// NAME=VALUE a line. In NAME '%', '/' and ':' are written %25, %2F and %3A. images/NAME may be a link to another name.
type image struct {
	tree string
	env  map[string]string
}

func (p *Provider) image(name string) (image, error) {
	if _, err := imageref.Parse(name); err != nil {
		return image{}, providers.Invalid.Errorf("image: %w", err)
	}
	file := strings.NewReplacer("%", "%25", "/", "%2F", ":", "%3A").Replace(name)
	dir, err := filepath.EvalSymlinks(filepath.Join(p.cfg.Dir, "images", file))
	if errors.Is(err, fs.ErrNotExist) {
		return image{}, providers.ImageMissing.Errorf("image %.200q not found in %s; run make tree to create the default image", name, filepath.Join(p.cfg.Dir, "images"))
	}
	if err != nil {
		return image{}, providers.Unavailable.Errorf("read the image directory: %w", err)
	}
	img := image{tree: filepath.Join(dir, "tree"), env: map[string]string{}}
	if _, err := os.Stat(img.tree); err != nil {
		return image{}, providers.ImageMissing.Errorf("image %.200q is incomplete: its file tree is missing; run make tree to create it again: %w", name, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return image{}, providers.Unavailable.Errorf("read the image's environment: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			img.env[name] = value
		}
	}
	return img, nil
}
