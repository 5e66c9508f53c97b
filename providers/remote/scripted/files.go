package scripted

import (
	"context"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sandyard/providers"
	"sandyard/providers/remote"
	"sandyard/providers/spool"
)

// maxListed is how many bytes a directory's description may have.
const maxListed = 4 << 20

// describe prints what stat says of the paths behind it, each after the mark, and what links among them lead to.
const describe = `
describe() {
	stat -c "$m %f %s %Y %i %U %G [%y] %n" -- "$@"
	for l do
		[ ! -L "$l" ] || printf '%s> %s%s%s\n' "$m" "$l" "$m" "$(readlink -- "$l"; echo .)"
	done
}
`

// statScript describes the path p, with the mark m.
const statScript = describe + `
if [ -e "$p" ] || [ -L "$p" ]; then describe "$p"; echo "$m."; else echo "$m!"; fi
`

// shell begins a script about the path abs.
func shell(m, abs string) string { return "m=" + m + " p=" + spool.Quote(abs) + "\n" }

// Stat implements providers.Files.
func (b *Box) Stat(ctx context.Context, given string) (providers.FileInfo, error) {
	abs, err := b.Sendable(given)
	if err != nil {
		return providers.FileInfo{}, err
	}
	return b.stat(ctx, abs)
}

func (b *Box) stat(ctx context.Context, abs string) (providers.FileInfo, error) {
	return b.one(ctx, abs, remote.ToStat, "")
}

// one does something, unless that is empty, and describes the path abs afterwards. What do says no to, the path
// explains.
func (b *Box) one(ctx context.Context, abs string, want remote.Purpose, do string) (providers.FileInfo, error) {
	m := mark()
	out, err := b.Script(ctx, "", shell(m, abs)+do+statScript, maxListed)
	if err != nil {
		return providers.FileInfo{}, err
	}
	found, err := records(string(out), m)
	if err == nil && len(found) != 1 {
		err = providers.Invalid.Errorf("'%s' cannot be used so", remote.Storable(abs))
	}
	if err != nil {
		return providers.FileInfo{}, b.Explain(ctx, abs, want, err)
	}
	info := found[0].FileInfo
	info.Path, info.Name = abs, path.Base(abs)
	return info, nil
}

// record is what stat says of a path.
type record struct {
	providers.FileInfo

	given string // its name, byte by byte
	inode string
	mtime string
}

// records reads what describe has printed, in which names may hold anything but the mark. Error: Invalid for "no".
func records(text, m string) (all []record, err error) {
	broken := providers.Internal.Errorf("the sandbox did not describe its files")
	if strings.HasPrefix(text, m+"!") {
		return nil, providers.Invalid.Errorf("the sandbox does not do that")
	}
	body, last, whole := strings.Cut(text, m+".\n")
	if !whole || last != "" {
		return nil, broken
	}
	links, link := map[string]string{}, "" // what they lead to, by their names; one may go before it is read
	for part := range strings.SplitSeq(body, m) {
		part = strings.TrimSuffix(part, "\n")
		if link != "" {
			links[link], link = strings.TrimSuffix(strings.TrimSuffix(part, "."), "\n"), ""
			continue
		}
		if name, ok := strings.CutPrefix(part, "> "); ok {
			link = name
			continue
		}
		if part == "" {
			continue
		}
		r, ok := recordOf(strings.TrimPrefix(part, " "))
		if !ok {
			return nil, broken
		}
		all = append(all, r)
	}
	for i := range all {
		if all[i].Type == "symlink" {
			all[i].SymlinkTarget = remote.Storable(links[all[i].given])
		}
	}
	return all, nil
}

func recordOf(text string) (r record, ok bool) {
	words := strings.SplitN(text, " ", 7)
	if len(words) != 7 || !strings.HasPrefix(words[6], "[") {
		return r, false
	}
	when, name, ok := strings.Cut(words[6][1:], "] ")
	mode, modeErr := strconv.ParseUint(words[0], 16, 32)
	size, sizeErr := strconv.ParseInt(words[1], 10, 64)
	seconds, timeErr := strconv.ParseInt(words[2], 10, 64)
	if !ok || modeErr != nil || sizeErr != nil || timeErr != nil || size < 0 {
		return r, false
	}
	r.given, r.inode, r.mtime = name, words[3], words[2]+" "+when
	r.FileInfo = providers.FileInfo{
		Name: remote.Storable(path.Base(name)), Path: remote.Storable(name), Type: typeName(uint32(mode)), Size: size,
		Mode:  providers.Octal(uint32(fs.FileMode(mode).Perm())),
		Owner: remote.Storable(words[4]), Group: remote.Storable(words[5]),
		ModifiedAt: providers.Possible(time.Unix(seconds, fraction(when))),
	}
	return r, true
}

// fraction is the part of a second, in nanoseconds, of a time as stat prints it; not every stat does.
func fraction(when string) int64 {
	_, behind, _ := strings.Cut(when, ".")
	digits, _, _ := strings.Cut(behind, " ")
	if len(digits) == 0 || len(digits) > 9 {
		return 0
	}
	n, err := strconv.ParseUint(digits+strings.Repeat("0", 9-len(digits)), 10, 32)
	if err != nil {
		return 0
	}
	return int64(n)
}

func typeName(mode uint32) string {
	switch mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return "file"
	case syscall.S_IFDIR:
		return "directory"
	case syscall.S_IFLNK:
		return "symlink"
	}
	return "other"
}

// listScript describes what is below the directory p, to the depth d.
const listScript = `
if [ -d "$p" ] && cd "$p" 2>/dev/null && [ -r . ]; then
	find . -mindepth 1 -maxdepth "$d" -exec sh -c 'm=$0; '"$f"' describe "$@"' "$m" {} +
	echo "$m."
else
	echo "$m!"
fi
`

// ListDir implements providers.Files. More than 10,000 entries are providers.TooLarge.
func (b *Box) ListDir(ctx context.Context, given string, depth int) ([]providers.FileInfo, error) {
	abs, err := b.Sendable(given)
	if err != nil {
		return nil, err
	}
	m := mark()
	depth = min(max(depth, 1), remote.MaxEntries)
	text := shell(m, abs) + "d=" + strconv.Itoa(depth) + " f=" + spool.Quote(describe) + listScript
	out, err := b.Script(ctx, "", text, maxListed)
	var found []record
	if err == nil {
		found, err = records(string(out), m)
	}
	if err != nil {
		return nil, b.Explain(ctx, abs, remote.ToList, err)
	}
	if len(found) > remote.MaxEntries {
		return nil, providers.TooLarge.Errorf("'%s' holds more than %d entries", abs, remote.MaxEntries)
	}
	list := make([]providers.FileInfo, 0, len(found))
	for _, r := range found {
		r.Path = path.Join(abs, r.Path)
		list = append(list, r.FileInfo)
	}
	slices.SortFunc(list, func(a, b providers.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// MakeDir implements providers.Files.
func (b *Box) MakeDir(ctx context.Context, given string) (providers.FileInfo, error) {
	abs, err := b.Sendable(given)
	if err != nil {
		return providers.FileInfo{}, err
	}
	return b.one(ctx, abs, remote.ToMake, `mkdir -p -- "$p" || { echo "$m!"; exit 0; }`+"\n")
}

// Move implements providers.Files.
func (b *Box) Move(ctx context.Context, from, to string) (providers.FileInfo, error) {
	source, err := b.Changeable(from)
	if err != nil {
		return providers.FileInfo{}, err
	}
	target, err := b.Changeable(to)
	if err != nil {
		return providers.FileInfo{}, err
	}
	do := "s=" + spool.Quote(source) + ` t="$p"
[ -e "$s" ] || [ -L "$s" ] || { echo "$m!"; exit 0; }
mkdir -p -- "${t%/*}/" && mv -fT -- "$s" "$t" || { echo "$m!"; exit 0; }
`
	info, err := b.one(ctx, target, remote.ToMake, do)
	if err != nil && (remote.IsClass(err, providers.Invalid) || remote.IsClass(err, providers.FileExists) ||
		remote.IsClass(err, providers.FileDenied) || remote.IsClass(err, providers.NotADir)) {
		err = b.Explain(ctx, source, remote.ToStat, err)
	}
	return info, err
}

// Remove implements providers.Files.
func (b *Box) Remove(ctx context.Context, given string) error {
	abs, err := b.Changeable(given)
	if err != nil {
		return err
	}
	m := mark()
	out, err := b.Script(ctx, "", shell(m, abs)+`if [ -e "$p" ] || [ -L "$p" ]; then
	rm -rf -- "$p"
	if [ -e "$p" ] || [ -L "$p" ]; then echo denied; else echo removed; fi
else
	echo missing
fi
`, 100)
	switch said := strings.TrimSpace(string(out)); {
	case err != nil:
		return err
	case said == "removed":
		return nil
	case said == "missing":
		return b.Explain(ctx, abs, remote.ToStat, remote.Missing(abs))
	}
	return b.Explain(ctx, abs, remote.ToMake, providers.FileDenied.Errorf("'%s' cannot be removed", abs))
}
