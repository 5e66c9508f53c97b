package worker

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sandyard/providers"
)

func TestLogsHoldNoTextOfUsers(t *testing.T) {
	t.Parallel()
	for _, class := range []providers.Class{
		providers.BuildFailed, providers.NotReady, providers.InvalidPath, providers.FileNotFound, providers.NoCommand, providers.Invalid,
		providers.ImageMissing, providers.BadArchive,
	} {
		err := fmt.Errorf("run job: %w", class.Errorf("step 1 said: s3cret"))
		if text := loggable(err); strings.Contains(text, "s3cret") || !strings.Contains(text, string(class)) {
			t.Errorf("%s: the log reads %q", class, text)
		}
	}
	for _, err := range []error{
		providers.Unavailable.Errorf("the engine is away"), providers.Internal.Errorf("the engine is away"),
		errors.New("the engine is away"),
	} {
		if text := loggable(err); !strings.Contains(text, "the engine is away") {
			t.Errorf("%v: the log reads %q", err, text)
		}
	}
}
