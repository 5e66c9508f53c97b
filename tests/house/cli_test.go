package house

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// commandLine is the page that lists the commands and options of sandyard.
const commandLine = "docs/cli.md"

// TestCommandLinePageIsTheCommandLine builds sandyard and compares docs/cli.md with its help: the commands with their arguments,
// and the options of each. A command of several words, such as node drain, is one whose arguments begin with a word.
func TestCommandLinePageIsTheCommandLine(t *testing.T) {
	t.Parallel()
	sandyard := filepath.Join(t.TempDir(), "sandyard")
	run(t, "go", "build", "-o", sandyard, "./cmd/sandyard")
	commands, options := map[string]string{}, map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  sandyard (\S+) +(\S.*)$((?:\n {6}\S.*)*)`).FindAllStringSubmatch(run(t, sandyard), -1) {
		name, about := m[1], m[2]
		args := strings.TrimPrefix(strings.ReplaceAll(m[3], "\n      ", " | "), " | ")
		commands[strings.TrimSpace("sandyard "+name+" "+args)] = about
		own := map[string]string{} // the options that the help of the command describes
		for _, words := range wordsOf(name, args) {
			for _, o := range regexp.MustCompile(`(?m)^  -(\S+).*\n\s+(\S.*)$`).FindAllStringSubmatch(run(t, sandyard, append(words, "--help")...), -1) {
				own[o[1]] = o[2]
				if slices.Contains(optionsIn(args, words), o[1]) {
					options[fmt.Sprintf("sandyard %s --%s", strings.Join(words, " "), o[1])] = o[2]
				}
			}
		}
		listed := optionsIn(args, nil)
		for _, option := range listed {
			if own[option] == "" {
				t.Errorf("sandyard lists %s %s, the help of %s does not describe --%s", name, args, name, option)
			}
		}
		for option := range own {
			if slices.Contains(listed, option) {
				continue
			}
			t.Errorf("sandyard %s --help describes --%s, sandyard alone does not list it", name, option)
		}
	}
	compareRows(t, "| command | does |", commands)
	compareRows(t, "| option of | option | meaning |", options)
	if len(commands) < 5 || len(options) < 5 {
		t.Errorf("only %d commands and %d options were found", len(commands), len(options))
	}
}

// word begins the forms of a command that have a help of their own.
var word = regexp.MustCompile(`^[a-z]+$`)

// wordsOf are the commands that have a help of their own: name and the word that a form of the arguments begins with, or name
// for the forms that begin with none.
func wordsOf(name, args string) [][]string {
	var all [][]string
	for _, form := range strings.Split(args, " | ") {
		words := []string{name}
		if first, _, _ := strings.Cut(form, " "); word.MatchString(first) {
			words = append(words, first)
		}
		if !slices.ContainsFunc(all, func(known []string) bool { return slices.Equal(known, words) }) {
			all = append(all, words)
		}
	}
	return all
}

// optionsIn are the options in the arguments of a command; with words, in the forms that these are the beginning of.
func optionsIn(args string, words []string) []string {
	var found []string
	for _, form := range strings.Split(args, " | ") {
		first, _, _ := strings.Cut(form, " ")
		if len(words) == 2 && first != words[1] || len(words) == 1 && word.MatchString(first) {
			continue
		}
		for _, m := range regexp.MustCompile(`--([a-z0-9-]+)`).FindAllStringSubmatch(form, -1) {
			found = append(found, m[1])
		}
	}
	return found
}

// compareRows holds the rows of a table of the page to what the program prints: the last cell is what the others mean.
func compareRows(t *testing.T, header string, want map[string]string) {
	t.Helper()
	listed := map[string]bool{}
	for _, row := range tableRows(t, commandLine, header) {
		name := strings.NewReplacer("` | `", " ", "`", "").Replace(strings.Join(row[:len(row)-1], " | "))
		listed[name] = true
		if about, ok := want[name]; !ok {
			t.Errorf("%s lists %q, which sandyard does not have", commandLine, name)
		} else if about != row[len(row)-1] {
			t.Errorf("%s says of %s %q, its help says %q", commandLine, name, row[len(row)-1], about)
		}
	}
	for name, about := range want {
		if !listed[name] {
			t.Errorf("%s does not list %q: %s", commandLine, name, about)
		}
	}
}

// run returns what a command prints; asked for help, it must not fail.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, &out)
	}
	return out.String()
}
