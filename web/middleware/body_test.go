package middleware

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
	"testing/iotest"

	"github.com/gofiber/fiber/v2"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBodiesTakeMemoryAsTheyCome reads bodies whose announced length there is no memory for.
func TestBodiesTakeMemoryAsTheyCome(t *testing.T) {
	t.Parallel()
	take := func(from io.Reader, announced, most int) ([]byte, error) {
		return readBody(from, announced, most, func(int) error { return nil })
	}
	sent := bytes.Repeat([]byte("0123456789"), 30_000)
	if _, err := take(bytes.NewReader(sent), 1<<50, math.MaxInt); !errors.Is(err, fiber.ErrBadRequest) {
		t.Errorf("a body that breaks off: %v", err)
	}
	for _, announced := range []int{len(sent), -1} {
		got, err := take(iotest.HalfReader(bytes.NewReader(sent)), announced, len(sent))
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("announced as %d, %d bytes, %v", announced, len(got), err)
		}
	}
	for _, announced := range []int{len(sent), -1} {
		if _, err := take(bytes.NewReader(sent), announced, len(sent)-1); !errors.Is(err, fiber.ErrRequestEntityTooLarge) {
			t.Errorf("one byte too many, announced as %d: %v", announced, err)
		}
	}
	if got, err := take(bytes.NewReader(nil), 0, 10); err != nil || len(got) != 0 {
		t.Errorf("an empty body: %q, %v", got, err)
	}
}
