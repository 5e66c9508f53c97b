package upload_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"

	"sandyard/providers"
	"sandyard/providers/upload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatAnUploadCameTo(t *testing.T) {
	t.Parallel()
	broke := errors.New("broke")
	for name, c := range map[string]struct {
		from   io.Reader
		want   int64
		sent   int64
		failed string
	}{
		"all of it":       {strings.NewReader("abc"), 3, 3, ""},
		"however many":    {strings.NewReader("abc"), -1, 3, ""},
		"too few":         {strings.NewReader("abc"), 5, 3, "the upload ended after 3 of 5 bytes"},
		"a broken source": {io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(broke)), 5, 2, "the upload was interrupted after 2 bytes: broke"},
	} {
		b := upload.New(c.from, c.want)
		_, _ = io.Copy(io.Discard, b) // whose error the body keeps
		err := b.Failed()
		if b.Sent() != c.sent || (err == nil) != (c.failed == "") {
			t.Errorf("%s: %d bytes, %v", name, b.Sent(), err)
		}
		if e := providers.AsError(err); err != nil && (e.Class != providers.Invalid || e.Message != c.failed) {
			t.Errorf("%s: %v, want %s", name, err, c.failed)
		}
	}
}
