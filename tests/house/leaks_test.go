package house

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryPackageLooksForItsLeaks wants goleak in every directory with tests, whatever build tags they have.
func TestEveryPackageLooksForItsLeaks(t *testing.T) {
	t.Parallel()
	looks := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		dir := filepath.Dir(path)
		looks[dir] = looks[dir] || bytes.Contains(text, []byte("goleak.VerifyTestMain(")) || bytes.Contains(text, []byte("goleak.Find("))
		return err
	})
	if err != nil || len(looks) == 0 {
		t.Fatalf("%d directories with tests, %v", len(looks), err)
	}
	for dir, does := range looks {
		if !does {
			t.Errorf("the tests of %s do not look for goroutines that they leave: add a TestMain with goleak", strings.TrimPrefix(dir, root+"/"))
		}
	}
}
