package providertest

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"sandyard/dev/testenv"
	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// streams checks files that are read and written as they come, in one sandbox.
func streams(t *testing.T, s *fixture.Suite) {
	if s.Caps.Files == providers.Unsupported {
		t.Skip("skipped: the provider declares files unsupported")
	}
	r := s.NewRoom(t)
	t.Run("content survives", func(t *testing.T) {
		t.Parallel()
		for name, size := range map[string]int{"empty": 0, "small": 10, "large": 1 << 20} {
			data := fixture.Pattern(size)
			for _, told := range []int64{int64(size), -1} {
				info, err := r.SaveFile(fixture.Within(t), "streams/"+name, onlyReader{bytes.NewReader(data)}, told, 0o640)
				if err != nil || info.Size != int64(size) || info.Mode != "0640" || info.Path != "/workspace/streams/"+name {
					t.Errorf("save %s: %+v, %v", name, info, err)
				}
				wantStream(t, r, "streams/"+name, 0, -1, data, int64(size))
			}
		}
	})
	t.Run("parts", func(t *testing.T) {
		t.Parallel()
		fixture.MustWrite(t, r, "parts", "0123456789")
		wantStream(t, r, "parts", 3, -1, []byte("3456789"), 10)
		wantStream(t, r, "parts", 3, 4, []byte("3456"), 10)
		wantStream(t, r, "parts", 8, 100, []byte("89"), 10)
		wantStream(t, r, "parts", 0, 1, []byte("0"), 10)
		wantStream(t, r, "parts", 0, 0, nil, 10)
	})
	t.Run("a broken upload changes nothing", func(t *testing.T) {
		t.Parallel()
		fixture.MustWrite(t, r, "broken/f", "old")
		for _, told := range []int64{-1, 100} {
			half := io.MultiReader(bytes.NewReader(fixture.Pattern(50)), failing{})
			_, err := r.SaveFile(fixture.Within(t), "broken/f", half, told, 0)
			fixture.WantClass(t, err, providers.Invalid)
		}
		_, err := r.SaveFile(fixture.Within(t), "broken/f", bytes.NewReader(fixture.Pattern(50)), 100, 0)
		fixture.WantClass(t, err, providers.Invalid)
		fixture.WantFile(t, r, "broken/f", "old")
		testenv.Eventually(t, "nothing else is left", func() bool {
			return slices.Equal(fixture.Paths(t, r, "broken", 1), []string{"/workspace/broken/f"})
		})
	})
	t.Run("refused", func(t *testing.T) { t.Parallel(); refusesStreams(t, r) })
	t.Run("no space", func(t *testing.T) { t.Parallel(); s.NeedsLimits(t); noSpaceForStreams(t, s) })
}

// onlyReader hides how long the content is.
type onlyReader struct{ io.Reader }

type failing struct{}

var errFailing = errors.New("the source failed")

func (failing) Read([]byte) (int, error) { return 0, errFailing }

func wantStream(t *testing.T, r fixture.Room, path string, offset, length int64, want []byte, size int64) {
	t.Helper()
	f, err := r.OpenFile(fixture.Within(t), path, offset, length)
	if err != nil {
		t.Errorf("open %s from %d on: %v", path, offset, err)
		return
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(got, want) || f.Size != size || f.Mode == 0 || f.ModifiedAt.IsZero() {
		t.Errorf(
			"%s from %d on, %d of it: %d bytes, size %d, mode %o, at %v, %v",
			path,
			offset,
			length,
			len(got),
			f.Size,
			f.Mode,
			f.ModifiedAt,
			err,
		)
	}
}

func refusesStreams(t *testing.T, r fixture.Room) {
	fixture.MustWrite(t, r, "refused/dir/f", "x")
	for path, class := range map[string]providers.Class{
		"refused/none": providers.FileNotFound, "refused/dir": providers.NotAFile, "../etc/passwd": providers.InvalidPath,
		"": providers.InvalidPath,
	} {
		_, err := r.OpenFile(fixture.Within(t), path, 0, -1)
		fixture.WantClass(t, err, class)
		_, err = r.OpenFile(fixture.Within(t), path, 0, 0)
		fixture.WantClass(t, err, class)
	}
	for path, class := range map[string]providers.Class{
		"refused/dir": providers.NotAFile, "../x": providers.InvalidPath,
		"": providers.InvalidPath,
	} {
		_, err := r.SaveFile(fixture.Within(t), path, bytes.NewReader([]byte("x")), 1, 0)
		fixture.WantClass(t, err, class)
	}
}

func noSpaceForStreams(t *testing.T, s *fixture.Suite) {
	r := s.NewRoomWith(t, providers.Spec{Resources: providers.Resources{MemoryMB: 256, DiskMB: 8}})
	fixture.MustWrite(t, r, "kept", "old")
	_, err := r.SaveFile(fixture.Within(t), "kept", onlyReader{bytes.NewReader(fixture.Pattern(20 << 20))}, -1, 0)
	fixture.WantClass(t, err, providers.NoSpace)
	fixture.WantFile(t, r, "kept", "old")
	_, err = r.SaveTree(fixture.Within(t), "tree", archive(t, file("a", "x"), file("b", string(fixture.Pattern(20<<20)))))
	fixture.WantClass(t, err, providers.NoSpace)
	fixture.WantFile(t, r, "tree/a", "x")
	if _, err := r.WriteFile(fixture.Within(t), "fits", fixture.Pattern(5<<20), 0); err != nil {
		t.Errorf("the space of a failed upload is not free again: %v", err)
	}
}
