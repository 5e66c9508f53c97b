package imageref

import (
	"fmt"
	"strings"
)

// Globs are patterns of names as people write them, each with its tag. In a pattern * stands for any text, also for
// none and also across slashes.
type Globs []string

// Check says which pattern can match no name.
func (g Globs) Check() error {
	for _, pattern := range g {
		if pattern == "" || strings.ContainsAny(pattern, " \t\r\n?[]\\") {
			return fmt.Errorf(
				"%q is not a pattern of image names; use patterns such as python:* or ghcr.io/acme/*, or * for all",
				pattern,
			)
		}
	}
	return nil
}

// Match says whether a pattern matches the name.
func (g Globs) Match(n Name) bool {
	for _, pattern := range g {
		if match(pattern, n.String()) {
			return true
		}
	}
	return false
}

// match compares from both ends and then finds each middle part as early as it can be, so it takes linear time.
func match(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = rest
	}
	return true
}
