package remote

import (
	"context"
	"slices"
	"strings"

	"sandyard/providers"
	"sandyard/providers/spool"
)

// Purpose is what a call wants to do with a path.
type Purpose int

// The purposes.
const (
	ToStat Purpose = iota
	ToRead
	ToWrite // a file
	ToList
	ToMake // a directory, or a name in one
)

// Explain finds the class of a refused file call: backends' own codes are few and differ by version, so the sandbox is
// asked what there is at the path. Any other error stays as it is.
func (f *Files) Explain(ctx context.Context, abs string, want Purpose, err error) error {
	vague := []providers.Class{
		providers.Invalid, providers.FileExists, providers.FileDenied, providers.FileNotFound,
		providers.Internal, providers.TooLarge,
	}
	known := providers.AsError(err)
	if !slices.Contains(vague, known.Class) || ctx.Err() != nil {
		return err
	}
	if known.Class == providers.TooLarge && want == ToList {
		return providers.TooLarge.Errorf("'%s' holds more entries than one answer may", abs)
	}
	if known.Class == providers.FileNotFound && want != ToWrite && want != ToMake {
		return Missing(abs)
	}
	found, lookErr := f.look(ctx, abs)
	switch {
	case lookErr != nil && IsClass(lookErr, providers.Unavailable):
		return err
	case lookErr != nil: // the sandbox is gone, say
		return lookErr
	}
	if class := found.class(want); class != "" {
		return &providers.Error{Class: class, Message: classMessage(class, abs), Err: known.Err}
	}
	return err
}

// Missing is the error of a path at which nothing is.
func Missing(abs string) error {
	return providers.FileNotFound.Errorf("path '%s' does not exist", abs)
}

func classMessage(class providers.Class, abs string) string {
	return "path '" + Storable(abs) + "' " + map[providers.Class]string{
		providers.FileNotFound: "does not exist", providers.NotAFile: "is not a regular file",
		providers.NotADir:    "is not a directory, or a part of it is not",
		providers.FileDenied: "may not be used by the sandbox's user", providers.FileExists: "exists and is not a directory",
		providers.InvalidPath: "is longer than Linux permits",
	}[class]
}

// place is what there is at a path.
type place struct {
	kind     string // dir, file, other, dangling, none, or below: a part of the path is no directory
	readable bool
	writable bool // itself, or the directory in which it would be made
}

const lookScript = `
r=- w=-
if [ -d "$p" ]; then k=dir
elif [ -f "$p" ]; then k=file
elif [ -e "$p" ]; then k=other
elif [ -L "$p" ]; then k=dangling
else
	k=none q=$p
	while [ ! -e "$q" ] && [ -n "$q" ]; do q=${q%/*}; done
	[ -d "${q:-/}" ] || k=below
	[ ! -w "${q:-/}" ] || w=w
fi
[ ! -r "$p" ] || r=r
[ ! -w "$p" ] || w=w
echo "look $k $r $w"
`

func (f *Files) look(ctx context.Context, abs string) (place, error) {
	text := "p=" + spool.Quote(abs) + lookScript
	if !ValidText(text) {
		return place{}, providers.InvalidPath.Errorf("the path is not UTF-8")
	}
	out, err := f.box.Script(ctx, "", text, 100)
	if err != nil {
		return place{}, err
	}
	words := strings.Fields(string(out))
	if len(words) != 4 || words[0] != "look" {
		return place{}, providers.Internal.Errorf("the sandbox did not report what is at the path")
	}
	return place{words[1], words[2] == "r", words[3] == "w"}, nil
}

// class is why a call with a path failed; empty = the place does not tell.
func (p place) class(want Purpose) providers.Class {
	switch {
	case p.kind == "below":
		return providers.NotADir
	case p.kind == "none" && want != ToWrite && want != ToMake, p.kind == "dangling" && want != ToStat:
		return providers.FileNotFound
	case want == ToRead && p.kind != "file", want == ToWrite && p.kind != "file" && p.kind != "none":
		return providers.NotAFile
	case want == ToList && p.kind != "dir":
		return providers.NotADir
	case want == ToMake && p.kind != "dir" && p.kind != "none":
		return providers.FileExists
	case (want == ToRead || want == ToList) && !p.readable, (want == ToWrite || want == ToMake) && !p.writable:
		return providers.FileDenied
	}
	return ""
}
