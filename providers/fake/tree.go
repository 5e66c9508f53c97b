package fake

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"sandyard/providers"
)

const maxPath = 4096

// tree is the files of one sandbox, under its work directory and /tmp.
type tree struct {
	workDir string
	mu      sync.Mutex
	nodes   map[string]*node // by absolute path
}

type node struct {
	dir     bool
	data    []byte
	mode    uint32
	changed time.Time
}

func newTree(workDir string) *tree {
	t := &tree{workDir: workDir, nodes: make(map[string]*node)}
	t.makeParents(workDir + "/x")
	t.makeParents("/tmp/x")
	return t
}

func (t *tree) joinAt(dir, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(dir, name)
}

// join makes name absolute; the home directory is the work directory.
func (t *tree) join(name string) string {
	if rest, ok := strings.CutPrefix(name, "~"); ok && (rest == "" || rest[0] == '/') {
		name = t.workDir + rest
	}
	return t.joinAt(t.workDir, name)
}

// resolve makes name absolute and refuses what leaves the roots.
func (t *tree) resolve(name string) (string, error) {
	if strings.Contains(name, "\x00") || len(name) > maxPath || name == "" {
		return "", providers.InvalidPath.Errorf("path %.80q is empty, too long or holds NUL", name)
	}
	full := t.join(name)
	for _, root := range []string{t.workDir, "/tmp"} {
		if full == root || strings.HasPrefix(full, root+"/") {
			return full, nil
		}
	}
	return "", providers.InvalidPath.Errorf("path %.80q leaves the sandbox", name)
}

func (t *tree) isDir(full string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[full]
	return n != nil && n.dir
}

// at runs do on a resolved path under the lock.
func (t *tree) at(name string, do func(full string) error) error {
	full, err := t.resolve(name)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return do(full)
}

func (t *tree) find(full string) (*node, error) {
	if n := t.nodes[full]; n != nil {
		return n, nil
	}
	return nil, providers.FileNotFound.Errorf("no such file: %s", full)
}

func (t *tree) parents(full string) error {
	for dir := path.Dir(full); dir != "/"; dir = path.Dir(dir) {
		if n := t.nodes[dir]; n != nil && !n.dir {
			return providers.NotADir.Errorf("%s is a file", dir)
		}
	}
	t.makeParents(full)
	return nil
}

func (t *tree) makeParents(full string) {
	for dir := path.Dir(full); dir != "/" && t.nodes[dir] == nil; dir = path.Dir(dir) {
		t.nodes[dir] = &node{dir: true, mode: 0o755, changed: time.Now()}
	}
}

func (t *tree) read(name string, limit int64) (data []byte, err error) {
	err = t.at(name, func(full string) error {
		n, err := t.find(full)
		switch {
		case err != nil:
			return err
		case n.dir:
			return providers.NotAFile.Errorf("%s is a directory", full)
		case int64(len(n.data)) > limit:
			return providers.TooLarge.Errorf("%s holds %d bytes, more than %d", full, len(n.data), limit)
		}
		data = slices.Clone(n.data)
		return nil
	})
	return data, err
}

func (t *tree) write(name string, data []byte, mode uint32) (info providers.FileInfo, err error) {
	err = t.at(name, func(full string) error {
		if n := t.nodes[full]; n != nil && n.dir {
			return providers.NotAFile.Errorf("%s is a directory", full)
		}
		if err := t.parents(full); err != nil {
			return err
		}
		t.nodes[full] = &node{data: slices.Clone(data), mode: cmp.Or(mode, 0o644), changed: time.Now()}
		info = t.info(full)
		return nil
	})
	return info, err
}

func (t *tree) append(name string, data []byte) error {
	return t.at(name, func(full string) error {
		n := t.nodes[full]
		if n == nil {
			n = &node{mode: 0o644}
			t.nodes[full] = n
		}
		n.data, n.changed = append(n.data, data...), time.Now()
		return nil
	})
}

func (t *tree) info(full string) providers.FileInfo {
	n := t.nodes[full]
	kind := "file"
	if n.dir {
		kind = "directory"
	}
	return providers.FileInfo{
		Name: path.Base(full), Path: full, Type: kind, Size: int64(len(n.data)),
		Mode: fmt.Sprintf("%04o", n.mode), Owner: "sandbox", Group: "sandbox", ModifiedAt: n.changed,
	}
}

func (t *tree) stat(name string) (info providers.FileInfo, err error) {
	err = t.at(name, func(full string) error {
		if _, err := t.find(full); err != nil {
			return err
		}
		info = t.info(full)
		return nil
	})
	return info, err
}

func (t *tree) list(name string, depth int) (infos []providers.FileInfo, err error) {
	err = t.at(name, func(full string) error {
		n, err := t.find(full)
		if err != nil {
			return err
		}
		if !n.dir {
			return providers.NotADir.Errorf("%s is a file", full)
		}
		for p := range t.nodes {
			below, ok := strings.CutPrefix(p, full+"/")
			if ok && strings.Count(below, "/") < depth {
				infos = append(infos, t.info(p))
			}
		}
		return nil
	})
	slices.SortFunc(infos, func(a, b providers.FileInfo) int { return cmp.Compare(a.Path, b.Path) })
	return infos, err
}

func (t *tree) makeDir(name string) (info providers.FileInfo, err error) {
	err = t.at(name, func(full string) error {
		if n := t.nodes[full]; n != nil && !n.dir {
			return providers.FileExists.Errorf("%s is a file", full)
		}
		if err := t.parents(full + "/x"); err != nil {
			return err
		}
		info = t.info(full)
		return nil
	})
	return info, err
}

func (t *tree) move(from, to string) (info providers.FileInfo, err error) {
	target, err := t.resolve(to)
	if err != nil {
		return info, err
	}
	err = t.at(from, func(full string) error {
		if _, err := t.find(full); err != nil {
			return err
		}
		if err := t.parents(target); err != nil {
			return err
		}
		for p, n := range t.within(full) {
			delete(t.nodes, p)
			t.nodes[target+strings.TrimPrefix(p, full)] = n
		}
		info = t.info(target)
		return nil
	})
	return info, err
}

func (t *tree) remove(name string) error {
	return t.at(name, func(full string) error {
		if _, err := t.find(full); err != nil {
			return err
		}
		for p := range t.within(full) {
			delete(t.nodes, p)
		}
		return nil
	})
}

// within is the node at full and all below it.
func (t *tree) within(full string) map[string]*node {
	found := make(map[string]*node)
	for p, n := range t.nodes {
		if p == full || strings.HasPrefix(p, full+"/") {
			found[p] = n
		}
	}
	return found
}
