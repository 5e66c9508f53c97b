package worker

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
	"time"

	"sandyard/models"
	"sandyard/providers"
)

// TestWhatFollowsAnError has a row for each class that asks for more than the end of the job: is it tried again, and
// does another provider make the sandbox in place of this one. The tests of a vendor's errors say which class each is.
func TestWhatFollowsAnError(t *testing.T) {
	t.Parallel()
	rows := map[providers.Class]struct{ again, next bool }{
		providers.Unavailable: {again: true}, // another one makes it where the provider is away, which the breaker asks
		providers.Busy:        {again: true},
		providers.Internal:    {again: true},
		providers.Capacity:    {again: true, next: true},
		providers.Quota:       {again: true, next: true},
		providers.RateLimited: {again: true, next: true},
		providers.DiskFull:    {again: true, next: true},
		providers.Refused:     {next: true},
		providers.KeyRefused:  {next: true},
	}
	job := func(kind string) *attempt { return &attempt{job: models.Job{Kind: kind, MaxAttempts: 20}} }
	for _, class := range classes(t) {
		err, want := class.Errorf("x"), rows[class]
		if got := job(models.KindCreate).mayRetry(err); got != want.again {
			t.Errorf("%s: a create is tried again: %v", class, got)
		}
		if got := fallsBack(err); got != want.next {
			t.Errorf("%s: the next provider is asked: %v", class, got)
		}
		ofKey := class == providers.Refused || class == providers.KeyRefused // until it has gone, somebody pays for it
		if got := job(models.KindDelete).mayRetry(err); got != (want.again || ofKey) {
			t.Errorf("%s: a delete is tried again: %v", class, got)
		}
	}
}

// classes are all classes of providers' errors.
func classes(t *testing.T) (all []providers.Class) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../providers/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && v.Type != nil {
			if of, ok := v.Type.(*ast.Ident); ok && of.Name == "Class" {
				text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, providers.Class(text))
			}
		}
		return true
	})
	if len(all) < 30 {
		t.Fatalf("only %d classes were found", len(all))
	}
	return all
}

// TestRetryPauseStaysASecond: the pause stays a second for ever. Doubling without a bound overflows to no pause after half an hour of failures.
func TestRetryPauseStaysASecond(t *testing.T) {
	t.Parallel()
	var p retryPause
	want := 50 * time.Millisecond
	for try := range 200 {
		if got := p.next(); got != want {
			t.Fatalf("pause %d is %v, want %v", try, got, want)
		}
		want = min(2*want, time.Second)
	}
}
