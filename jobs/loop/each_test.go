package loop

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestOneFailureKeepsNobodyElseFromHisTurn(t *testing.T) {
	t.Parallel()
	broken, away := errors.New("this row is broken"), io.ErrUnexpectedEOF
	for name, c := range map[string]struct {
		fails error // at the second
		ready error
		seen  int
	}{
		"nothing fails":           {nil, nil, 9},
		"a row is broken":         {broken, nil, 9},
		"a row, but not the rest": {broken, away, 9}, // nobody has asked
		"one connection":          {away, nil, 9},
		"the whole database":      {away, away, 2},
	} {
		var seen []int
		err := Each(t.Context(), func(context.Context) error { return c.ready }, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, func(n int) error {
			if seen = append(seen, n); n == 2 {
				return c.fails
			}
			return nil
		})
		if len(seen) != c.seen || !slices.IsSorted(seen) || !errors.Is(err, c.fails) {
			t.Errorf("%s: %v had their turns, %v", name, seen, err)
		}
	}
	err := Each(t.Context(), nil, make([]int, 1000), func(int) error { return broken })
	if err == nil || strings.Count(err.Error(), "broken") != ToldFailures || !strings.Contains(err.Error(), "1000 in all") {
		t.Errorf("a thousand failures are told as %v", err)
	}
}

func TestPartsEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		parts []int
		fails bool
		total int
	}{
		"none": {[]int{0}, false, 0}, "some": {[]int{10, 10, 3}, false, 23}, "whole parts": {[]int{10, 0}, false, 10}, "broken off": {[]int{10, 10}, true, 20},
	} {
		left := c.parts
		total, err := InParts(t.Context(), 10, func(context.Context, int) (n int, err error) {
			n, left = left[0], left[1:]
			if c.fails && len(left) == 0 {
				err = io.EOF
			}
			return n, err
		})
		if total != c.total || len(left) != 0 || (err != nil) != c.fails {
			t.Errorf("%s: %d, %v, and %v are left", name, total, err, left)
		}
	}
}
