package engineerr_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"

	"sandyard/providers"
	"sandyard/providers/docker/engineerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestErrorsOfTheEngine have a class that says what follows, and words without the engine's insides.
func TestErrorsOfTheEngine(t *testing.T) {
	t.Parallel()
	const ref = "ff2f2c3ecbc0f2e1727e4ac154b8f3c3e0b5a583eebdd06b33213b42b994c70f"
	for _, c := range []struct {
		err   error
		class providers.Class
		text  string
	}{
		{
			errors.New("Error response from daemon: Cannot pause container " + ref +
				": OCI runtime pause failed: unable to freeze: unknown"),
			providers.Busy, "could not pause it: its processes could not be frozen in time",
		},
		{
			errors.New("Error response from daemon: OCI runtime start failed: starting container: creating process: " +
				"failed to load /.sandyard/guest: bad address: unknown"),
			providers.Unavailable, "the runtime could not load its first process, as the machine is busy",
		},
		{fmt.Errorf("read: %w", io.ErrUnexpectedEOF), providers.Unavailable, "the connection to the docker engine broke"},
		{context.DeadlineExceeded, providers.Unavailable, "did not answer in time"},
		{fmt.Errorf("no such container: %w", errdefs.ErrNotFound), providers.NotFound, "no such container"},
		{fmt.Errorf("in use: %w", errdefs.ErrConflict), providers.Busy, "in use"},
		{errors.New("a storage driver's error"), providers.Internal, "a storage driver's error"},
	} {
		got := engineerr.Translate(c.err, "pause it")
		known, ok := errors.AsType[*providers.Error](got)
		if !ok || known.Class != c.class || !strings.Contains(known.Message, c.text) || strings.Contains(known.Message, ref) {
			t.Errorf("%v became %v, want %s: %s", c.err, got, c.class, c.text)
		}
	}
}
